"""Signs a browser in by a link or a token, and out."""

from __future__ import annotations

from flask import Blueprint, Response, redirect, request

from api.dashboard import render
from api.dashboard.access import Access
from app.engine import Engine
from app.errors import CapabilityRefused
from app.security.api_tokens import Token

#: Maximum length of a token or of a link's secret.
_LONGEST = 400


class SignIn:
    """One method per route."""

    def __init__(self, engine: Engine, access: Access) -> None:
        self._engine = engine
        self._access = access

    def show(self) -> Response:
        """GET /ui/sign-in: show the sign-in form.

        The secret of a link is behind the # of its address, which browsers do not send: the page
        posts it, so that no log has it.
        """
        return render.page("sign_in.html", why="")

    def redeem(self) -> Response:
        """POST /ui/sign-in: start a browser session for a link or a token, and set its cookie."""
        link, token = (request.form.get(name, "")[:_LONGEST].strip() for name in ("link", "token"))
        browsers = self._access.browsers
        try:
            cookie = browsers.redeem(link) if link else browsers.start(self._recognise(token))
        except CapabilityRefused as error:
            return render.page("sign_in.html", status=401, why=error.why)
        response = redirect("/ui/inbox", 303)
        assert isinstance(response, Response)
        self._access.set_cookie(response, cookie)
        return response

    def sign_out(self) -> Response:
        """POST /ui/sign-out: end the browser session and delete its cookie."""
        response = redirect("/ui/sign-in", 303)
        assert isinstance(response, Response)
        self._access.drop_cookie(response)
        return response

    def _recognise(self, text: str) -> Token | None:
        if not text:
            raise CapabilityRefused("enter a token, or open the link of `leadhand ui`")
        return self._access.browsers.recognise_token(text)

    def add_to(self, routes: Blueprint) -> None:
        """Registers the routes of sign-in and sign-out."""
        routes.add_url_rule("/sign-in", "sign_in", self.show)
        routes.add_url_rule("/sign-in", "redeem", self.redeem, methods=["POST"])
        routes.add_url_rule("/sign-out", "sign_out", self.sign_out, methods=["POST"])
