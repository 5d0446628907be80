"""Checks the Host and the origin of requests that a browser may have been tricked into.

A page of another site can resolve its own name to 127.0.0.1 (DNS rebinding), or post a form to the
dashboard with the user's cookie. The first sends a foreign Host, the second a foreign origin.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import Flask, request

from app.settings import Settings
from leadhand.errors import Malformed, Refused, TokenRefused, of_status

#: Names of the machine itself; with any port.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_MISDIRECTED = 421


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
