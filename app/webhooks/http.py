"""HTTP client for webhooks, which connects only to IPs that the egress rules allow."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from app.security.egress import Destination, destination, is_public, is_trusted, refusal

#: Total time-out of a try, from name resolution to the head of the response.
TOTAL_S = 5.0
#: Maximum bytes of a response that are read; only its status matters.
CAP = 64 * 1024


class Posted(NamedTuple):
    """Whether a receiver accepted a webhook, and its response or the error."""

    arrived: bool
    why: str


class _NotPosted(Exception):
    """The try failed; the text is for the session's record."""


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def remaining(self) -> float:
        """The remaining seconds. Raises TimeoutError if there are none."""
        remaining = self._until - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    hosts: Iterable[str] = (),
    total_s: float = TOTAL_S,
    context: ssl.SSLContext | None = None,
) -> Posted:
    """Send one HTTP POST without redirects or proxies; returns whether it arrived, and why not.

    It takes at most `total_s`, and is refused if the egress rules forbid the URL.
    """
    to = destination(url)
    deadline = _Deadline(total_s)
    refused = refusal(to, hosts)
    if refused is not None:
        return Posted(arrived=False, why=refused)
    try:
        addresses = _addresses(to, deadline, private=is_trusted(to, hosts))
        with _connect(to, addresses, deadline, context) as connection:
            connection.settimeout(deadline.remaining())
            connection.sendall(_request(to, body, headers))
            status = _status(connection, deadline)
    except TimeoutError:
        return Posted(arrived=False, why=f"no response within {total_s:g} s")
    except (_NotPosted, OSError) as error:
        return Posted(arrived=False, why=str(error) or type(error).__name__)
    return Posted(arrived=200 <= status < 300, why=f"answered {status}")


def _addresses(to: Destination, deadline: _Deadline, *, private: bool) -> Sequence[str]:
    """Resolve the host once. Raises _NotPosted if any IP is not public."""
    found = _resolve(to, deadline)
    if not private and not all(map(is_public, found)):
        # The private IP is not revealed to the user.
        raise _NotPosted(f"{to.host} is not, or not only, a public address")
    return found


def _resolve(to: Destination, deadline: _Deadline) -> list[str]:
    """Resolve in a thread, because the resolver's own time-out may be much longer."""
    came: list[list[str] | OSError] = []

    def resolve() -> None:
        try:
            found = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
            came.append(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except (OSError, UnicodeError) as error:
            came.append(OSError(str(error)))

    asking = threading.Thread(target=resolve, name="resolve", daemon=True)
    asking.start()
    asking.join(deadline.remaining())
    if not came:
        raise TimeoutError
    if isinstance(came[0], OSError):
        raise _NotPosted(f"{to.host} cannot be resolved") from came[0]
    return came[0]


def _connect(
    to: Destination, addresses: Sequence[str], deadline: _Deadline, context: ssl.SSLContext | None
) -> socket.socket:
    """Connect to the first IP that accepts; the certificate must match the host."""
    plain = _plain(to, addresses, deadline)
    if to.scheme == "http":
        return plain
    try:
        plain.settimeout(deadline.remaining())
        return (context or _verifying()).wrap_socket(plain, server_hostname=to.host)
    except BaseException:
        plain.close()
        raise


def _plain(to: Destination, addresses: Sequence[str], deadline: _Deadline) -> socket.socket:
    failure: OSError = OSError("no address")
    for address in addresses:
        try:
            return socket.create_connection((address, to.port), timeout=deadline.remaining())
        except TimeoutError:
            raise
        except OSError as error:
            failure = error
    raise _NotPosted(f"{to.authority} cannot be reached: {failure.strerror or failure}")


@lru_cache(maxsize=1)
def _verifying() -> ssl.SSLContext:
    return ssl.create_default_context()


def _request(to: Destination, body: bytes, headers: Mapping[str, str]) -> bytes:
    fields = {
        "Host": to.authority,
        **headers,
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = [f"POST {to.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _status(connection: socket.socket, deadline: _Deadline) -> int:
    """The status of the final response; its body is not read."""
    answer = b""
    while True:
        while b"\r\n\r\n" not in answer:
            if len(answer) >= CAP:
                raise _NotPosted(f"the response head is longer than {CAP} bytes")
            connection.settimeout(deadline.remaining())
            more = connection.recv(min(8192, CAP - len(answer)))
            if not more:
                raise _NotPosted("the connection was closed before a response arrived")
            answer += more
        head, _, answer = answer.partition(b"\r\n\r\n")
        status = _status_of(head)
        if status >= 200:
            return status


def _status_of(head: bytes) -> int:
    """Parses the status line of a response.

    >>> _status_of(b"HTTP/1.1 204 No Content")
    204
    """
    version, _, rest = head.partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or len(code) < 3:
        raise _NotPosted("the response is not HTTP")
    return int(code)
