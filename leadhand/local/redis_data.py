"""Reads a Redis server's data files: whether there are any, and which server wrote them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

#: The append-only folder of Redis 7 and Valkey, and the append-only file of Redis 6.
_FOLDER, _FILE = "appendonlydir", "appendonly.aof"
_BASE = re.compile(r"\.(\d+)\.base\.rdb$")
#: The first field of an RDB file: its name and its value, each after a length byte.
_WRITER = re.compile(rb"(?:REDIS|VALKEY)\d+\xfa.(redis|valkey)-ver.(\d+)\.(\d+)", re.DOTALL)
_HEAD_BYTES = 64
_OLDEST = (6, 0)


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
