"""Launches the embedded Redis: behind a password on loopback, durable, and never older than us.

The server holds a lock on its folder (an open file that it inherits), so that a second one never
writes the same append-only file, however the first one's starter ended.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from leadhand import home as home_folder
from leadhand import leash, redis_wire
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
        self._program = program
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoint = self._folder / "endpoint.json"

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
            port = _free_port(self._port())
            self._spawn(program, port)
            if self._answers(program, port):
                return self.url
        raise RedisNotStarted(str(program.path), "each free port was taken at once", self._tail())

    def stop(self) -> None:
        """End it cleanly: what it knows is on disk."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(leash.CUT)

    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(leash.CUT)
            self._process.wait(_STOP_S)
        self._process = None

    def _spawn(self, program: Program, port: int) -> None:
        with home_folder.fit(self._home):
            password = self._password() or secrets.token_urlsafe(32)
            fields: dict[str, str | int | float] = {"port": port, "password": password}
            home_folder.write_fields(self._endpoint, fields)
            configuration = _CONFIGURATION.format_map(fields)
            home_folder.write_whole(self._folder / "redis.conf", configuration)
            lock = self._take_lock(program)
            try:
                with self.log.open("ab") as log:
                    self._process = subprocess.Popen(  # noqa: S603 - an argv of our own
                        [*leash.command(), str(program.path), "redis.conf"],
                        cwd=self._folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=[lock],
                        start_new_session=True,
                    )
            finally:
                os.close(lock)  # the server's own copy keeps it

    def _take_lock(self, program: Program) -> int:
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        give_up = time.monotonic() + _STOP_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up:
                    os.close(lock)
                    why = f"another server still works in {str(self._folder)!r}"
                    raise RedisNotStarted(str(program.path), why, self._tail()) from None
                time.sleep(_LOOK_S)
            else:
                return lock

    def _answers(self, program: Program, port: int) -> bool:
        """True once it does; False where somebody else took its port."""
        give_up = time.monotonic() + self._patience_s
        while time.monotonic() < give_up:
            if self.has_ended():
                if "already in use" in self._tail():
                    return False
                raise RedisNotStarted(str(program.path), "it ended at once", self._tail())
            said = _ping(port, self._password())
            if said == "+PONG":
                return True
            if said.startswith("-LOADING"):
                give_up = time.monotonic() + self._patience_s
            time.sleep(_LOOK_S)
        self.kill()
        why = f"no answer on port {port} within {self._patience_s:g} s"
        raise RedisNotStarted(str(program.path), why, self._tail())

    def _refuse_lossy_downgrade(self, program: Program) -> None:
        if (self._folder / "appendonlydir").exists() and not program.keeps_append_only_folder:
            why = "a newer server wrote the data, and this one would start without it"
            raise RedisNotStarted(str(program.path), why, "")

    def _port(self) -> int:
        return int(home_folder.read_fields(self._endpoint).get("port", 0))

    def _password(self) -> str:
        return str(home_folder.read_fields(self._endpoint).get("password", ""))

    def _tail(self) -> str:
        return home_folder.tail(self.log)


def _ping(port: int, password: str) -> str:
    try:
        return redis_wire.ask(port, password=password, command="PING")
    except OSError:
        return ""


def _free_port(wanted: int) -> int:
    """The wanted port where nobody listens on it, else one that the system chooses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
