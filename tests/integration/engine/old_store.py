"""Loads a store that an earlier version wrote into the Redis of a test.

`data/make_store_626b29f.py` says how its file was made.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

FILE = Path(__file__).parent / "data/store_626b29f.json.gz"


def read_store() -> dict[str, Any]:
    """Return the content of the file: keys, ids of sessions by name, views, secrets and tokens."""
    content: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return content


def load_store(url: str, content: dict[str, Any]) -> None:
    """Write each key with its type, its value and its remaining time."""
    with redis.Redis.from_url(url) as client:
        for key, entry in content["keys"].items():
            _WRITERS[entry["type"]](client, key, entry["value"])
            if entry["pttl"] is not None:
                client.pexpire(key, entry["pttl"])


def _write_stream(client: redis.Redis, key: str, entries: list[Any]) -> None:
    for event_id, fields in entries:
        client.xadd(key, fields, id=event_id)


_WRITERS: dict[str, Callable[[redis.Redis, str, Any], object]] = {
    "string": lambda client, key, value: client.set(key, value),
    "hash": lambda client, key, value: client.hset(key, mapping=value),
    "set": lambda client, key, value: client.sadd(key, *value),
    "list": lambda client, key, value: client.rpush(key, *value),
    "zset": lambda client, key, value: client.zadd(key, dict(value)),
    "stream": _write_stream,
}
