"""The users of a fleet's Redis on the servers of tests.

With `pytest --acl` engines and services connect as these users, so that a command without a right
fails the test of its feature. `make chaos` always does.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

import redis

User = Literal["api", "worker", "broker"]
_SCRIPT = Path(__file__).parent.parent / "deploy" / "redis" / "users.sh"
_USERS = ("api", "worker", "broker", "operator")
#: Commands that only tests send, to prepare and to look, by the connections of a store.
_OF_TESTS = ("+flushall", "+flushdb", "+keys", "+dbsize", "+select", "+config|resetstat",
             "+dump", "+restore")  # fmt: skip


def lines() -> list[str]:
    """The lines of an ACL file with the users of `deploy/redis/users.acl`."""
    passwords = {f"REDIS_{user.upper()}_PASSWORD": _password(user) for user in _USERS}
    done = subprocess.run(
        ["sh", str(_SCRIPT)], env={**os.environ, **passwords}, capture_output=True, check=True
    )
    return done.stdout.decode().splitlines()


def define(url: str) -> None:
    """Add the users to a server; those of the state may also send what tests do."""
    with redis.Redis.from_url(url) as client:
        for name, *rules in (line.split()[1:] for line in lines()):
            if name in _USERS:
                more: Sequence[str] = _OF_TESTS if name in ("api", "worker") else ()
                client.execute_command("ACL", "SETUSER", name, *rules, *more)


def as_user(url: str, user: User) -> str:
    """The URL of a server with these users, for one of them; the broker's messages are in db 1."""
    parts = urlsplit(in_database(url, user))
    at = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{_password(user)}@{at}"))


def in_database(url: str, user: User) -> str:
    """The URL of a server in the database that a user works in, with the login as it is."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path="/1")) if user == "broker" else url


def of_worker(url: str) -> str:
    """The worker's URL where this is that of the API; otherwise the same one."""
    return as_user(url, "worker") if urlsplit(url).username == "api" else url


def of_broker(url: str) -> str:
    """The broker's URL where this is that of the API; otherwise the same login in its database."""
    user = urlsplit(url).username
    return as_user(url, "broker") if user == "api" else in_database(url, "broker")


def _password(user: str) -> str:
    return f"{user}-of-the-tests"
