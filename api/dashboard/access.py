"""Authenticates browsers: host names, the cookie, a scope for each route, and the sign-in.

A page of another site can resolve its own name to 127.0.0.1 (DNS rebinding), or post a form to the
dashboard with the user's cookie. The first sends a foreign Host, the second a foreign origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, g, redirect, request

from api.auth import Visitor
from api.dashboard import render
from app.engine import Engine
from app.errors import CapabilityRefused
from app.security.api_tokens import Scope, Token
from app.security.browser_sessions import LONGEST_S, BrowserSessions
from app.settings import Settings
from leadhand.errors import Malformed, Refused, StoreAway, TokenRefused, of_status

#: Names of the machine itself; with any port.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_MISDIRECTED = 421
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
#: Maximum length of a token or of a link's secret.
_LONGEST = 400


class Hosts:
    """The names under which this API is reached."""

    def __init__(self, settings: Settings) -> None:
        self._public = settings.public_url.rstrip("/")
        self._allowed = {name.lower() for name in settings.allowed_hosts}
        if self._public:
            self._allowed.add(urlsplit(self._public).netloc.lower())
        #: Whether only this machine reaches the API, so that every request names it.
        self.is_loopback = _name_of(settings.api_bind) in LOOPBACK

    def check_host(self) -> None:
        """Raises Refused if the request's Host header is neither loopback nor an allowed name."""
        given = request.host.lower()
        name = _name_of(given)
        if name in LOOPBACK or given in self._allowed or name in self._allowed:
            return
        hint = (
            "reach it by its own address, or name the host in LEADHAND_PUBLIC_URL or"
            " LEADHAND_ALLOWED_HOSTS"
        )
        raise of_status(_MISDIRECTED, f"this API is not {given[:100]!r}", hint=hint)

    def check_origin(self) -> None:
        """Raises Refused for a changing request that no page of the dashboard has sent (CSRF)."""
        if request.method in _SAFE:
            return
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None:
            if site == "same-origin":
                return
            raise _foreign(f"it comes from another site ({site[:20]})")
        origin = request.headers.get("Origin")
        if origin is None:
            raise _foreign("it names no origin")
        if origin not in self._origins():
            raise _foreign(f"it comes from {origin[:100]!r}")

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the dashboard by https."""
        return self._public.startswith("https:") or request.is_secure

    @property
    def base_url(self) -> str:
        """Returns the URL of the dashboard for browsers, without a slash at its end."""
        return self._public or f"{request.scheme}://{request.host}"

    def _origins(self) -> set[str]:
        parts = urlsplit(self._public)
        own = {f"{request.scheme}://{request.host}"}
        return own | ({f"{parts.scheme}://{parts.netloc}"} if self._public else set())


def install(flask: Flask, hosts: Hosts) -> None:
    """Registers a check of the Host header: there is one, and on loopback it is a known name."""

    def check() -> None:
        given = request.environ.get("HTTP_HOST")
        if (given is None and request.environ.get("SERVER_PROTOCOL") == "HTTP/1.1") or (
            given is not None and "," in given
        ):
            hint = "send the header Host once, as HTTP/1.1 requires"
            raise Malformed("the request does not name one host", field="Host", hint=hint)
        if hosts.is_loopback:
            hosts.check_host()

    flask.before_request(check)


def _name_of(host: str) -> str:
    """A host without its port.

    >>> [_name_of(host) for host in ("127.0.0.1:8765", "[::1]:80", "[::1]", "example.org")]
    ['127.0.0.1', '[::1]', '[::1]', 'example.org']
    """
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _foreign(why: str) -> Refused:
    return TokenRefused(f"the request was refused: {why}", hint="open the dashboard itself")


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
