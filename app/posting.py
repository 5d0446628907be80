"""Posts one webhook: over a connection to an address that was looked at, and to no other."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from app.addresses import Destination, destination, is_public, refusal, trusted

#: How long one try may take in all, from the name's resolution to the answer's head.
TOTAL_S = 5.0
#: How much of an answer is read; all that matters is its status.
CAP = 64 * 1024


class Posted(NamedTuple):
    """Whether a receiver has taken a webhook, and what it said."""

    arrived: bool
    why: str


class _NotPosted(Exception):
    """What went wrong, in words for the session's record."""


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        """The seconds that are left. Raises TimeoutError once there are none."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    hosts: Iterable[str] = (),
    total_s: float = TOTAL_S,
    context: ssl.SSLContext | None = None,
) -> Posted:
    """Try once. Follows no redirect, asks no proxy, and takes at most `total_s`."""
    to = destination(url)
    deadline = _Deadline(total_s)
    refused = refusal(to, hosts)
    if refused is not None:
        return Posted(arrived=False, why=refused)
    try:
        addresses = _addresses(to, deadline, private=trusted(to, hosts))
        with _connected(to, addresses, deadline, context) as connection:
            connection.settimeout(deadline.left())
            connection.sendall(_request(to, body, headers))
            status = _status(connection, deadline)
    except TimeoutError:
        return Posted(arrived=False, why=f"no answer within {total_s:g} s")
    except (_NotPosted, OSError) as error:
        return Posted(arrived=False, why=str(error) or type(error).__name__)
    return Posted(arrived=200 <= status < 300, why=f"answered {status}")


def _addresses(to: Destination, deadline: _Deadline, *, private: bool) -> Sequence[str]:
    """What the host's name stands for, asked once. Raises _NotPosted if any of it is not public."""
    found = _resolved(to, deadline)
    if not private and not all(map(is_public, found)):
        # Which address it is, is nothing for those who may not reach it.
        raise _NotPosted(f"{to.host} is not, or not only, a public address")
    return found


def _resolved(to: Destination, deadline: _Deadline) -> list[str]:
    """The host's addresses; the resolver has a time-out of its own, which may be much longer."""
    came: list[list[str] | OSError] = []

    def resolve() -> None:
        try:
            found = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
            came.append(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except (OSError, UnicodeError) as error:
            came.append(OSError(str(error)))

    asking = threading.Thread(target=resolve, name="resolve", daemon=True)
    asking.start()
    asking.join(deadline.left())
    if not came:
        raise TimeoutError
    if isinstance(came[0], OSError):
        raise _NotPosted(f"{to.host} cannot be resolved") from came[0]
    return came[0]


def _connected(
    to: Destination, addresses: Sequence[str], deadline: _Deadline, context: ssl.SSLContext | None
) -> socket.socket:
    """A connection to the first address that answers; the certificate must be the host's."""
    plain = _plain(to, addresses, deadline)
    if to.scheme == "http":
        return plain
    try:
        plain.settimeout(deadline.left())
        return (context or _verifying()).wrap_socket(plain, server_hostname=to.host)
    except BaseException:
        plain.close()
        raise


def _plain(to: Destination, addresses: Sequence[str], deadline: _Deadline) -> socket.socket:
    failure: OSError = OSError("no address")
    for address in addresses:
        try:
            return socket.create_connection((address, to.port), timeout=deadline.left())
        except TimeoutError:
            raise
        except OSError as error:
            failure = error
    raise _NotPosted(f"{to.authority} cannot be reached: {failure.strerror or failure}")


@lru_cache(maxsize=1)
def _verifying() -> ssl.SSLContext:
    return ssl.create_default_context()


def _request(to: Destination, body: bytes, headers: Mapping[str, str]) -> bytes:
    given = {
        "Host": to.authority,
        **headers,
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = [f"POST {to.target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _status(connection: socket.socket, deadline: _Deadline) -> int:
    """The status of the final answer; what comes after its head is not read."""
    answer = b""
    while True:
        while b"\r\n\r\n" not in answer:
            if len(answer) >= CAP:
                raise _NotPosted(f"the answer's head is longer than {CAP} bytes")
            connection.settimeout(deadline.left())
            more = connection.recv(min(8192, CAP - len(answer)))
            if not more:
                raise _NotPosted("the connection was closed before an answer came")
            answer += more
        head, _, answer = answer.partition(b"\r\n\r\n")
        status = _status_of(head)
        if status >= 200:
            return status


def _status_of(head: bytes) -> int:
    """The status of an answer's first line.

    >>> _status_of(b"HTTP/1.1 204 No Content")
    204
    """
    version, _, rest = head.partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or len(code) < 3:
        raise _NotPosted("the answer is not HTTP")
    return int(code)
