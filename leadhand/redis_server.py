"""Launches the embedded Redis: behind a password on loopback, durable, and never older than us.

The server holds a lock on its folder (an open file that it inherits), so that a second one never
writes the same append-only file, however the first one's starter ended.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from types import TracebackType

from leadhand import home as home_folder
from leadhand import locks, redis_wire
from leadhand.leashed import Leashed
from leadhand.ports import free_port
from leadhand.redis_program import Program, find_program
from leadhand.start_errors import RedisNotStarted

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
daemonize no
"""
#: How often a port that was just free may be snatched before it is bound.
_PORT_TRIES = 5
_LOOK_S = 0.02
_STOP_S = 15.0


class RedisServer:
    """One server process and its folder `redis/` in the state folder; also a context manager."""

    def __init__(self, home: Path, *, program: Program | None = None, patience_s: float = 30.0):
        self._home = home
        self._folder = home / "redis"
        self._endpoint = self._folder / "endpoint.json"
        self._program = program
        self._patience_s = patience_s
        self._process: Leashed | None = None
        self._log_began = 0

    @property
    def log(self) -> Path:
        return self._home / "log" / "redis.log"

    @property
    def url(self) -> str:
        """Where the server is, or was and will be again where its port stays free."""
        return f"redis://:{self._password()}@127.0.0.1:{self._port()}/0"

    def start(self) -> str:
        """Start it, wait until it has loaded its data and answers; its URL.

        Raises RedisMissing, RedisNotStarted, FolderUnfit.
        """
        home_folder.prepare(self._home)
        program = self._program = self._program or find_program()
        self._refuse_lossy_downgrade(program)
        for _ in range(_PORT_TRIES):
            self._spawn(program, free_port(self._port()))
            if self._answers(program):
                return self.url
        raise self._not_started(program, "each free port was taken at once")

    def relaunch(self) -> None:
        """Start it again where it was, without waiting for it: the URL stays what it is."""
        self._spawn(self._program or find_program(), self._port())

    def stop(self) -> None:
        """End it cleanly: what it knows is on disk."""
        if self._process:
            self._process.end(within_s=_STOP_S)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process:
            self._process.cut()

    def has_ended(self) -> bool:
        return self._process is None or self._process.exit_code is not None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.stop()

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
                # Read as input and standing in its folder, it never meets a long or odd path.
                self._process = Leashed(
                    [str(program.path), "-"],
                    cwd=self._folder,
                    log=self.log,
                    read=written,
                    pass_fds=[lock],
                )
            finally:
                os.close(lock)  # the server's own copy keeps it

    def _take_folder(self, program: Program) -> int:
        """Wait for the end of a former server, which may still be writing."""
        lock = locks.open_lock(self._folder / "lock")
        give_up = time.monotonic() + _STOP_S
        while not locks.take(lock):
            if time.monotonic() > give_up:
                os.close(lock)
                raise self._not_started(program, "another server still works in its folder")
            time.sleep(_LOOK_S)
        return lock

    def _answers(self, program: Program) -> bool:
        """True once it does; False where somebody else took its port."""
        give_up = time.monotonic() + self._patience_s
        while time.monotonic() < give_up:
            if self.has_ended():
                if "already in use" in home_folder.tail(self.log, since=self._log_began):
                    return False
                raise self._not_started(program, "it ended at once")
            said = self._ping()
            if said == "+PONG":
                return True
            if said.startswith("-LOADING"):  # as long as it likes: it is at work
                give_up = time.monotonic() + self._patience_s
            time.sleep(_LOOK_S)
        self.kill()
        raise self._not_started(program, f"no answer within {self._patience_s:g} s")

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
        return RedisNotStarted(
            str(program.path), why, home_folder.tail(self.log, since=self._log_began)
        )

    def _port(self) -> int:
        return int(home_folder.read_fields(self._endpoint).get("port", 0))

    def _password(self) -> str:
        return str(home_folder.read_fields(self._endpoint).get("password", ""))
