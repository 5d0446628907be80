"""Lists and imports the sessions of an opened copy, in a process of the server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from leadhand.cli.imports.working_copy import Opened
from leadhand.local.bindings import require_bound
from leadhand.local.environment import Stack, broker_of, service_environment
from leadhand.local.errors import StackElsewhere
from leadhand.local.python_module import service_command
from leadhand.local.running import read_run
from leadhand.local.user_settings import with_config


class Importable(BaseModel):
    """A session that can be imported, with those that it started."""

    session: str
    status: str
    label: str
    folder: str
    #: The number of sessions of its tree.
    sessions: int
    #: What would run again after a resume; empty if it cannot be resumed.
    runs: list[str]


class Transfer:
    """The way from an opened copy to running services."""

    def __init__(self, origin: Opened, home: Path, env: Mapping[str, str]) -> None:
        self._origin = origin
        self._home = home
        self._env = with_config(env)

    def found(self) -> list[Importable]:
        """Return the sessions of an old state folder that can be imported, oldest first."""
        return TypeAdapter(list[Importable]).validate_json(self._run(None))

    def run(self, sessions: Sequence[str]) -> dict[str, str]:
        """Import sessions by id, with those that they started; return each one's result."""
        return TypeAdapter(dict[str, str]).validate_json(self._run(sessions))

    def _run(self, sessions: Sequence[str] | None) -> bytes:
        order = {
            "redis_url": self._origin.redis_url,
            "secret": self._origin.secret,
            "folder": str(self._origin.home),
            "is_own": self._origin.is_own,
            "sessions": sessions,
        }
        done = subprocess.run(  # noqa: S603 - an argv, no shell
            service_command("import", self._env),
            input=json.dumps(order).encode(),
            env=service_environment(self._stack(), self._env),
            cwd=self._home,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip() or "the import ended early"
            raise StackElsewhere(str(self._home), why, "run `leadhand import` again")
        return done.stdout

    def _stack(self) -> Stack:
        """The services that get the sessions, as far as the process needs to know them."""
        binding, run = require_bound(self._home, self._env), read_run(self._home)
        return Stack(
            home=self._home,
            redis_url=run["redis_url"],
            broker_url=broker_of(run["redis_url"]),
            secret=self._env.get("LEADHAND_SECRET") or binding.secret,
            api_token=run["token"],
            api_port=0,
            supervisor_pid=int(run["pid"]),
        )
