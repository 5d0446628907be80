"""Just enough of Redis' protocol to ask a server one thing, without a client library."""

from __future__ import annotations

import socket


def ask(port: int, *, password: str, command: str, timeout_s: float = 1.0) -> str:
    """The first line of a local server's answer to a command: `+PONG`, or `-LOADING ...`.

    Raises OSError where it is not there or hangs up.
    """
    with (
        socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as link,
        link.makefile("rb") as answers,
    ):
        link.sendall(f"AUTH default {password}\r\n{command}\r\n".encode())
        _line(answers.readline())
        return _line(answers.readline())


def _line(received: bytes) -> str:
    if not received.endswith(b"\r\n"):
        raise ConnectionAbortedError("the server hung up")
    return received[:-2].decode(errors="replace")
