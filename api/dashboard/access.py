"""Authenticates browsers by their cookie, and authorizes each route by its scope."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Response, g, request

from api.auth import Visitor
from api.dashboard.hosts import Hosts
from app.errors import CapabilityRefused
from app.security.api_tokens import Scope
from app.security.browser_sessions import LONGEST_S, BrowserSessions
from leadhand.errors import StoreAway, TokenRefused

#: Routes without a cookie; they show nothing about sessions.
PUBLIC = frozenset({"sign_in", "redeem", "static"})
#: Route -> its scope. Any other route needs `read` to be seen, and `control` to be posted.
NEEDED: Mapping[str, Scope] = {
    "run_flow": Scope.SUBMIT,
    "copy": Scope.SUBMIT,
    "sign_out": Scope.READ,
    "save_view": Scope.READ,
    "drop_view": Scope.READ,
}
_COOKIE = "leadhand"


class NotSignedIn(Exception):
    """The browser has no valid session."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Access:
    """The gate of the dashboard."""

    def __init__(self, browsers: BrowserSessions, hosts: Hosts) -> None:
        self.browsers = browsers
        self.hosts = hosts

    def admit(self) -> None:
        """Checks host, origin, cookie and scope of a dashboard request, and stores its visitor.

        Public routes need no cookie. Raises NotSignedIn and Refused.
        """
        self.hosts.check_host()
        self.hosts.check_origin()
        route = (request.endpoint or "").rpartition(".")[2]
        if route in PUBLIC:
            return
        cookie = request.cookies.get(self.cookie_name)
        if not cookie:
            raise NotSignedIn("")
        visitor = self._recognise(cookie)
        g.by, g.visitor = visitor.name, visitor
        g.token_recheck = lambda: self._still(cookie)
        needed = scope_of(route, request.method)
        if needed not in visitor.scopes:
            raise TokenRefused(
                f"the token that signed in lacks the scope {needed.value!r}",
                hint="sign in with a token that has it",
            )

    @property
    def cookie_name(self) -> str:
        """Returns the name of the session cookie: over HTTP it contains the port of the API."""
        if self.hosts.is_secure:
            return f"__Host-{_COOKIE}"
        _, _, port = request.host.rpartition(":")
        return f"{_COOKIE}-{port}" if port.isdecimal() else _COOKIE

    def set_cookie(self, response: Response, text: str) -> None:
        """Sets the session cookie in a response to the browser."""
        response.set_cookie(
            self.cookie_name, text, max_age=LONGEST_S, path="/", httponly=True,
            samesite="Strict", secure=self.hosts.is_secure,
        )  # fmt: skip

    def drop_cookie(self, response: Response) -> None:
        """Ends the browser session of this request and deletes its cookie in a response."""
        self.browsers.end(request.cookies.get(self.cookie_name, ""))
        response.delete_cookie(
            self.cookie_name, path="/", httponly=True, samesite="Strict",
            secure=self.hosts.is_secure,
        )  # fmt: skip

    def _recognise(self, cookie: str) -> Visitor:
        try:
            return Visitor(token=self.browsers.recognise(cookie))
        except CapabilityRefused as error:
            raise NotSignedIn(error.why) from None

    def _still(self, cookie: str) -> bool:
        try:
            self._recognise(cookie)
        except NotSignedIn:
            return False
        except StoreAway:
            return True  # unknown; the stream ends by itself if Redis stays away
        return True


def scope_of(route: str, method: str) -> Scope:
    """Returns the scope that a dashboard route requires: by default `read` (GET) or `control`."""
    default = Scope.READ if method in ("GET", "HEAD", "OPTIONS") else Scope.CONTROL
    return NEEDED.get(route, default)
