"""Scans all keys under the prefix and their content in batches, for the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import Literal, cast

from redis import Redis

from app.store.keys import Keys

Kind = Literal["zset", "hash", "set"]


class KeyScanner:
    """Reads with SCAN and its variants: at most one batch in memory, without blocking Redis."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def scan(self, cursor: int, count: int) -> tuple[int, list[str]]:
        """Return a batch of the store's keys and the next cursor, which is 0 at the end."""
        with self._away():
            found = self._redis.scan(cursor, match=self._keys.everywhere("*"), count=count)
        after, keys = cast("tuple[int, list[str]]", found)
        return int(after), keys

    def batches(self, key: str, kind: Kind, size: int) -> Iterator[list[str]]:
        """Yield the members of a set or the fields of a hash in batches; may miss changes."""
        names = self._names(key, kind, size)
        while True:
            with self._away():
                batch = list(islice(names, size))
            if not batch:
                return
            yield batch

    def _names(self, key: str, kind: Kind, size: int) -> Iterator[str]:
        match kind:
            case "zset":
                rows = cast("Iterator[tuple[str, float]]", self._redis.zscan_iter(key, count=size))
                return (name for name, _ in rows)
            case "hash":
                fields = self._redis.hscan_iter(key, count=size)
                return (name for name, _ in cast("Iterator[tuple[str, str]]", fields))
            case "set":
                return cast("Iterator[str]", self._redis.sscan_iter(key, count=size))
