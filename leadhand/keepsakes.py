"""What a state folder keeps from one life of its stack to the next, and what is found around it."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from urllib.parse import urlsplit

from leadhand import home as home_folder
from leadhand.ports import free_port
from leadhand.start_errors import StackNotStarted


def require_answer(home: Path, redis_url: str) -> None:
    """Tell at once of a Redis that is not there; a socket's path is left to the services."""
    parts = urlsplit(redis_url)
    if parts.hostname is None:
        return
    address = (parts.hostname, parts.port or 6379)
    try:
        socket.create_connection(address, timeout=5.0).close()
    except OSError as error:
        why = f"the Redis of LEADHAND_REDIS_URL at {address[0]}:{address[1]} does not answer"
        raise StackNotStarted(str(home), f"{why} ({error})", "") from error


def own_secrets(home: Path) -> dict[str, str]:
    """Made once for a state folder, so that what they signed stays good over restarts."""
    path = home / "secrets.json"
    known = {name: str(value) for name, value in home_folder.read_fields(path).items()}
    if not {"secret", "api_token"} <= known.keys():
        known = {name: secrets.token_urlsafe(32) for name in ("secret", "api_token")}
        with home_folder.fit(home):
            home_folder.write_fields(path, known)
    return known


def own_port(home: Path) -> int:
    """The same from life to life where it is free, so that an open dashboard finds us again."""
    path = home / "api.json"
    port = free_port(int(home_folder.read_fields(path).get("port", 0)))
    with home_folder.fit(home):
        home_folder.write_fields(path, {"port": port})
    return port


def agents_files(cwd: Path) -> tuple[Path, ...]:
    """The user's, then the folder's, there or not yet: an agent that both name is the folder's."""
    return (Path.home() / ".config" / "leadhand" / "agents.toml", cwd / "agents.toml")
