"""The Redis login, the API port and the agents files that an embedded stack starts with."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from leadhand.local import user_state
from leadhand.local.errors import StackNotStarted
from leadhand.local.processes import free_port
from leadhand.local.user_state import home_of


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


def require_answer(home: Path, redis_url: str) -> None:
    """Raises StackNotStarted if Redis is unreachable or refuses the login.

    Unix sockets are not checked, and of a TLS server only the connection.
    """
    parts = urlsplit(redis_url)
    if parts.hostname is None:
        return
    address = (parts.hostname, parts.port or 6379)
    try:
        if parts.scheme != "redis":
            socket.create_connection(address, timeout=5.0).close()
            return
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        reply = login(*address, user=user, password=password)
    except OSError as error:
        why = f"the Redis of LEADHAND_REDIS_URL at {address[0]}:{address[1]} does not answer"
        raise StackNotStarted(str(home), f"{why} ({error})", "") from error
    if reply.startswith(("-WRONGPASS", "-NOAUTH", "-ERR")):
        why = f"the Redis at {address[0]}:{address[1]} refuses the login of LEADHAND_REDIS_URL"
        raise StackNotStarted(str(home), f"{why} ({reply[1:]})", "")


def own_port(home: Path) -> int:
    """Returns the API port of the last run, or a free one if it is taken, and stores it."""
    path = home / "api.json"
    port = free_port(int(user_state.read_fields(path).get("port", 0)))
    with user_state.fit(home):
        user_state.write_fields(path, {"port": port})
    return port


def user_agents_files(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Returns the path of the user's agents.toml; empty for a user without a home folder."""
    home = home_of(env)
    return () if home is None else (home / ".config" / "leadhand" / "agents.toml",)
