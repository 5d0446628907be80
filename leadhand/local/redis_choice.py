"""Chooses the Redis server for a state folder: the one that wrote its data, or the default.

Valkey and Redis cannot read each other's newer files, and an older version cannot read those of a
newer one. So the folder records the server that wrote it, and no other kind and no older version is
started on it. A folder without the record has its server's name in the header of its snapshot.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from leadhand.local import state_dir as home_folder
from leadhand.local.errors import RedisForeign
from leadhand.local.redis_binary import Program, candidates, find_program, identify

RECORD = "server.json"
_VERSION = re.compile(r"(\d+)\.(\d+)")
#: The append-only folder of Redis 7 and Valkey, and the append-only file of Redis 6.
_FOLDER, _FILE = "appendonlydir", "appendonly.aof"
_BASE = re.compile(r"\.(\d+)\.base\.rdb$")
#: The first field of an RDB file: its name and its value, each after a length byte.
_WRITER = re.compile(rb"(?:REDIS|VALKEY)\d+\xfa.(redis|valkey)-ver.(\d+)\.(\d+)", re.DOTALL)
_HEAD_BYTES = 64
_OLDEST = (6, 0)


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
        tried.append(f"{name}: {_why_not(path, program)}")
    raise _foreign(home, writer, recorded, tried)


def require_may_open(home: Path, program: Program) -> None:
    """Raises RedisForeign if the server cannot read the folder's data."""
    writer = find_writer(home)
    if writer is not None and not may_open(program, writer):
        raise _foreign(home, writer, _recorded(home), [_why_not(program.path, program)])


def find_writer(home: Path) -> Writer | None:
    """Returns kind and version of the server that wrote the folder's data; None if unknown."""
    if not holds_data(home):
        return None
    fields = home_folder.read_fields(home / "redis" / RECORD)
    version = _VERSION.fullmatch(str(fields.get("version", "")))
    if version is None or "kind" not in fields:
        return read_writer(home)
    return Writer(str(fields["kind"]), (int(version[1]), int(version[2])))


def record_program(home: Path, program: Program) -> None:
    """Records which server writes the folder's data from now on."""
    fields = {"path": str(program.path), "kind": program.kind, "version": _text(program.version)}
    record = home / "redis" / RECORD
    if home_folder.read_fields(record) != fields:
        home_folder.write_fields(record, fields)


def may_open(program: Program, writer: Writer) -> bool:
    """Whether the server can read the writer's data: the same kind, and not older."""
    return program.kind == writer.kind and program.version >= writer.version


def _recorded(home: Path) -> Path | None:
    path = home_folder.read_fields(home / "redis" / RECORD).get("path")
    return Path(str(path)) if path else None


def _foreign(home: Path, writer: Writer, recorded: Path | None, tried: list[str]) -> RedisForeign:
    path = "" if recorded is None else str(recorded)
    wrote = f"{writer.kind} {_text(writer.version)}"
    return RedisForeign(str(home / "redis"), wrote, path, tuple(tried))


def _why_not(path: Path | None, program: Program | None) -> str:
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
