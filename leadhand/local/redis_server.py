"""Runs the embedded Redis server: on loopback, with a password and an append-only file.

The server inherits a lock on its folder, so that no second server writes the same append-only file,
even if the process that started the first one was killed.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from leadhand.local import file_locks, redis_wire
from leadhand.local import state_dir as home_folder
from leadhand.local.errors import RedisNotStarted
from leadhand.local.guarded_process import GuardedProcess
from leadhand.local.ports import free_port
from leadhand.local.redis_binary import Program
from leadhand.local.redis_choice import choose_program, record_program, require_may_open

_CONFIGURATION = """\
port {port}
bind 127.0.0.1
protected-mode yes
requirepass {password}
dir .
appendonly yes
appendfsync everysec
aof-load-truncated yes
save ""
maxmemory-policy noeviction
databases 4
hz 2
daemonize no
"""
#: Tries with another port if a free port is taken before the server binds it.
_PORT_TRIES = 5
_LOOK_S = 0.02
_STOP_S = 15.0


class RedisServer:
    """One server process and its folder `redis/` in the state folder; also a context manager."""

    def __init__(
        self,
        home: Path,
        *,
        program: Program | None = None,
        named: str = "",
        patience_s: float = 30.0,
    ) -> None:
        self._home = home
        self._folder = home / "redis"
        self._endpoint = self._folder / "endpoint.json"
        self._program = program
        self._named = named
        self._patience_s = patience_s
        self._process: GuardedProcess | None = None
        self._log_began = 0

    @property
    def log(self) -> Path:
        """Return the path of the server's log file."""
        return self._home / "log" / "redis.log"

    def output(self) -> str:
        """Return the end of what the server has written since it was last started."""
        return home_folder.tail(self.log, since=self._log_began)

    @property
    def url(self) -> str:
        """Return the URL of the server; it keeps its port across restarts if that is free."""
        return f"redis://:{self._password()}@127.0.0.1:{self._port()}/0"

    def start(self) -> str:
        """Start the server, wait until it has loaded its data, and return its URL.

        Raises RedisMissing, RedisForeign, RedisNotStarted, FolderUnfit.
        """
        home_folder.prepare(self._home)
        program = self._program = self._choose()
        for _ in range(_PORT_TRIES):
            self._spawn(program, free_port(self._port()))
            if self._answers(program):
                with home_folder.fit(self._home):
                    record_program(self._home, program)
                return self.url
        raise self._not_started(program, "no free port could be bound")

    def relaunch(self) -> None:
        """Restart the server on the same port without waiting for it."""
        self._spawn(self._choose(), self._port())

    def stop(self, is_urgent: Callable[[], bool] = lambda: False) -> None:  # noqa: ARG002
        """Shut the server down cleanly, with its data on disk, also if that is urgent."""
        if self._process:
            self._process.end(within_s=_STOP_S)

    def kill(self) -> None:
        """Kill the server at once, without saving its data."""
        if self._process:
            self._process.cut()

    def has_ended(self) -> bool:
        """Whether the server's process has ended, or was never started."""
        return self._process is None or self._process.exit_code is not None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.stop()

    def _choose(self) -> Program:
        """The program passed to the constructor, or the one that fits the folder's data."""
        program = self._program or choose_program(self._home, named=self._named)
        require_may_open(self._home, program)
        self._refuse_lossy_downgrade(program)
        return program

    def _spawn(self, program: Program, port: int) -> None:
        password = self._password() or secrets.token_urlsafe(32)
        self._log_began = home_folder.size(self.log)
        with home_folder.fit(self._home):
            home_folder.write_fields(self._endpoint, {"port": port, "password": password})
            configuration = _CONFIGURATION.format(port=port, password=password)
            written = self._folder / "redis.conf"
            home_folder.write_whole(written, configuration)
            lock = self._take_folder(program)
            try:
                # With its configuration on standard input, a long or odd path does not matter.
                self._process = GuardedProcess(
                    [str(program.path), "-"],
                    cwd=self._folder,
                    log=self.log,
                    read=written,
                    pass_fds=[lock],
                )
            finally:
                os.close(lock)  # the server has inherited it

    def _take_folder(self, program: Program) -> int:
        """Wait for a previous server to end, which may still be writing."""
        lock = file_locks.open_lock(self._folder / "lock")
        give_up = time.monotonic() + _STOP_S
        while not file_locks.take(lock):
            if time.monotonic() > give_up:
                os.close(lock)
                raise self._not_started(program, "another server still uses its folder")
            time.sleep(_LOOK_S)
        return lock

    def _answers(self, program: Program) -> bool:
        """Wait until the server responds; False if another process took its port."""
        give_up = time.monotonic() + self._patience_s
        while time.monotonic() < give_up:
            if self.has_ended():
                if "already in use" in self.output():
                    return False
                raise self._not_started(program, "it ended at once")
            reply = self._ping()
            if reply == "+PONG":
                return True
            if reply.startswith("-LOADING"):  # loading data may take any time
                give_up = time.monotonic() + self._patience_s
            time.sleep(_LOOK_S)
        self.kill()
        raise self._not_started(program, f"no response within {self._patience_s:g} s")

    def _ping(self) -> str:
        try:
            return redis_wire.ask(self._port(), password=self._password(), command="PING")
        except OSError:
            return ""

    def _refuse_lossy_downgrade(self, program: Program) -> None:
        if (self._folder / "appendonlydir").exists() and not program.keeps_append_only_folder:
            raise self._not_started(
                program, "a newer server wrote the data, and this one would start without it"
            )

    def _not_started(self, program: Program, why: str) -> RedisNotStarted:
        return RedisNotStarted(str(program.path), why, self.output())

    def _port(self) -> int:
        return int(home_folder.read_fields(self._endpoint).get("port", 0))

    def _password(self) -> str:
        return str(home_folder.read_fields(self._endpoint).get("password", ""))
