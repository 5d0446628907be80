"""A minimal Redis client for one command, without a client library."""

from __future__ import annotations

import socket


def ask(port: int, *, password: str, command: str, timeout_s: float = 1.0) -> str:
    """Logs in to a local Redis and sends a command; returns the first line of the reply (`+PONG`).

    Raises OSError if the server is unreachable or closes the connection.
    """
    with (
        socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as link,
        link.makefile("rb") as answers,
    ):
        link.sendall(f"AUTH default {password}\r\n{command}\r\n".encode())
        _line(answers.readline())
        return _line(answers.readline())


def login(host: str, port: int, *, user: str, password: str, timeout_s: float = 5.0) -> str:
    """Logs in to a Redis server; returns the first line of its reply, such as `+OK`.

    Without a password, sends PING. Raises OSError if the server is unreachable or closes the
    connection.
    """
    words = ["AUTH", *([user] if user else []), password] if password else ["PING"]
    command = f"*{len(words)}\r\n" + "".join(
        f"${len(word.encode())}\r\n{word}\r\n" for word in words
    )
    with (
        socket.create_connection((host, port), timeout=timeout_s) as link,
        link.makefile("rb") as answers,
    ):
        link.sendall(command.encode())
        return _line(answers.readline())


def _line(received: bytes) -> str:
    if not received.endswith(b"\r\n"):
        raise ConnectionAbortedError("the server closed the connection")
    return received[:-2].decode(errors="replace")
