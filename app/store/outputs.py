"""Reads the output of running bodies: a bounded stream per attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

from redis import Redis

from app.domain.ids import SessionRef
from app.store.keys import Keys

#: Before the first part of an attempt.
BEGINNING = "0-0"


class StoredPart(NamedTuple):
    """One part of an attempt's output."""

    #: Its id in the stream: the server's time in ms, a dash and a number.
    id: str
    seq: int
    stream: str
    text: str
    #: Bytes that were dropped just before it.
    dropped: int

    @property
    def at_ms(self) -> int:
        """Return when the part was stored, in ms."""
        return int(self.id.partition("-")[0])


class OutputReads:
    """The rings of one store, each named ``address#fence``."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def attempts(self, ref: SessionRef) -> list[tuple[str, int]]:
        """Read which attempts have stored output, with the time of its last part; oldest first."""
        key = self._keys.part(ref, "outputs")
        with self._away():
            rows = self._redis.zrange(key, 0, -1, withscores=True)
        return [(name, int(at)) for name, at in cast("list[tuple[str, float]]", rows)]

    def parts(
        self, ref: SessionRef, after: Mapping[str, str], *, limit: int | None = None
    ) -> dict[str, list[StoredPart]]:
        """Read the stored output of several attempts, each after an id, oldest first.

        At most `limit` of each.
        """
        if not after:
            return {}
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for attempt, last in after.items():
                pipe.xrange(self._keys.output(ref, attempt), min=f"({last}", count=limit)
            answers = pipe.execute()
        return {
            attempt: [_part(id_, fields) for id_, fields in entries]
            for attempt, entries in zip(after, answers, strict=True)
            if entries
        }

    def newest_parts(
        self, ref: SessionRef, attempts: Sequence[str], *, limit: int
    ) -> dict[str, list[StoredPart]]:
        """Read at most `limit` parts of the output of each attempt, newest first."""
        if not attempts:
            return {}
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for attempt in attempts:
                pipe.xrevrange(self._keys.output(ref, attempt), count=limit)
            answers = pipe.execute()
        return {
            attempt: [_part(id_, fields) for id_, fields in entries]
            for attempt, entries in zip(attempts, answers, strict=True)
        }


def _part(id_: str, fields: Mapping[str, str]) -> StoredPart:
    return StoredPart(id_, int(fields["n"]), fields["s"], fields["t"], int(fields["d"]))
