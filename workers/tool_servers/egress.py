"""An HTTP client that connects only to the addresses that the egress rules allow."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Mapping, Sequence

import httpx2

from app.security.egress import Destination, destination, is_public, is_trusted, refusal

#: What the value of a header may be.
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
#: Seconds for a connection, at most.
_CONNECT_S = 10.0


class EgressRefused(httpx2.TransportError):
    """The egress rules forbid the address."""


class HeaderRefused(httpx2.LocalProtocolError):
    """HTTP forbids a header's value, which the text does not show: it may be a secret."""

    def __init__(self, name: str) -> None:
        super().__init__(f"header {name} has characters that HTTP forbids")


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Resolves a host once, refuses what is not public, and connects to that IP.

    So a second answer of the name server cannot lead to another address. Proxies are not used.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = tuple(hosts)
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request to its host's IP. Raises EgressRefused if that is not allowed."""
        to = destination(str(request.url))
        ip = await _allowed_ip(to, self._hosts)
        request.extensions = {**request.extensions, "sni_hostname": to.host}
        request.url = request.url.copy_with(host=ip)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        await self._inner.aclose()


def guarded_client(
    hosts: Sequence[str], *, headers: Mapping[str, str], timeout_s: float
) -> httpx2.AsyncClient:
    """Returns an HTTP client that refuses private addresses, except those of `hosts`.

    Raises HeaderRefused.
    """
    for name, value in headers.items():
        if _VALUE.fullmatch(value) is None:
            raise HeaderRefused(name)
    return httpx2.AsyncClient(
        transport=GuardedTransport(hosts),
        headers=dict(headers),
        timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
        follow_redirects=False,
        trust_env=False,
    )


def public_text(error: BaseException) -> str:
    """Returns an error's text; for a request that breaks HTTP, a fixed text without its values."""
    if isinstance(error, httpx2.LocalProtocolError) and not isinstance(error, HeaderRefused):
        return "the request breaks the rules of HTTP"
    return str(error) or type(error).__name__


async def _allowed_ip(to: Destination, hosts: Sequence[str]) -> str:
    """The first IP of the host. Raises EgressRefused if one of them is not allowed."""
    why = refusal(to, hosts)
    if why is not None:
        raise EgressRefused(f"{why}; let the operator name {to.authority} in LEADHAND_TOOL_HOSTS")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            to.host, to.port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError):
        raise httpx2.ConnectError(f"{to.host} cannot be resolved") from None
    ips = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not is_trusted(to, hosts) and not all(map(is_public, ips)):
        # The private IP is not revealed to the user.
        hint = f"let the operator name {to.authority} in LEADHAND_TOOL_HOSTS"
        raise EgressRefused(f"{to.host} is not, or not only, a public address; {hint}")
    return ips[0]
