"""Reads the changes of all sessions, the index of those that may need a person, and events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from redis import Redis
from redis.exceptions import WatchError

from app.core.addresses import SessionRef
from app.store.errors import Away, StorePart
from app.store.keys import Keys
from leadhand.models.views.explain import ChangeView
from leadhand.models.views.step import Event

#: A read must end before the socket's time-out.
LONGEST_MS = 2000
#: The id before the first entry of a stream.
NONE = "0-0"


def stream_entries(entries: object) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the id and fields of each entry in a Redis stream's reply, in RESP2 or RESP3 form."""
    assert isinstance(entries, list)
    for entry in entries:
        if isinstance(entry, list):
            yield from ((str(i), dict(f)) for i, f in entry)
        else:
            yield str(entry[0]), dict(entry[1])


def read_event(entry: tuple[str, dict[str, str]]) -> Event:
    """Converts an entry of a session's event stream (id and fields) to an Event."""
    id_, fields = entry
    return Event(
        id=id_,
        type=fields["t"],
        at_ms=int(fields["at"]),
        address=fields["a"] or None,
        fields=json.loads(fields["d"]) if fields["d"] else {},
    )


class Called(NamedTuple):
    """A session that may need a person, and since when (ms)."""

    at: float
    session: str


class ChangeReads(StorePart):
    """Reads `changes` and `attention`."""

    def __init__(self, redis: Redis, keys: Keys, away: Away) -> None:
        super().__init__(redis, keys, away)
        self._stream = keys.everywhere("changes")
        self._attention = keys.everywhere("attention")

    def last(self) -> str:
        """Return the id of the newest change of any session; the lowest id if there is none."""
        return self._last(self._stream)

    def first(self) -> str | None:
        """Return the id of the oldest stored change of any session; None if there is none."""
        with self._away():
            found = self._redis.xrange(self._stream, count=1)
        return next((id_ for id_, _ in stream_entries(found)), None)

    def last_events(self, refs: Sequence[SessionRef]) -> list[str]:
        """Return the id of each session's newest event; `NONE` for one without events."""
        if not refs:
            return []
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref in refs:
                pipe.xrevrange(self._keys.part(ref, "events"), count=1)
            rows = pipe.execute()
        return [next((id_ for id_, _ in stream_entries(found)), NONE) for found in rows]

    def after(self, last: str, *, limit: int = 500, block_ms: int = 0) -> list[ChangeView]:
        """Read the sessions' changes after an id, oldest first; waits up to `block_ms` for one."""
        with self._away():
            found = self._redis.xread(
                {self._stream: last}, count=limit, block=min(block_ms, LONGEST_MS) or None
            )
        pairs = found.items() if isinstance(found, dict) else found or []
        return [
            ChangeView(id=str(id_), session=fields["s"], what=fields["w"])
            for _, entries in pairs
            for id_, fields in stream_entries(entries)
        ]

    def called(self, *, before: Called, limit: int) -> list[Called]:
        """Read sessions that may need a person and asked before `before`, the last to ask first."""
        start = 0
        while True:
            with self._away():
                rows = self._redis.zrevrangebyscore(
                    self._attention, before.at, "-inf", start=start, num=limit, withscores=True
                )
            found = [Called(float(at), s) for s, at in cast("list[tuple[str, float]]", rows)]
            later = [one for one in found if one < before]
            if later or len(found) < limit:
                return later
            start += limit  # all of them have the same ms, and were returned before

    def remove(self, over: Sequence[Called]) -> None:
        """Remove sessions from the index of those that need a person, unless they asked again."""
        if not over:
            return
        with self._away(), self._redis.pipeline() as pipe:
            try:
                pipe.watch(self._attention)  # type: ignore[no-untyped-call]
                named = [one.session for one in over]
                scores = pipe.zmscore(self._attention, named)
                same = [
                    one.session
                    for one, at in zip(over, scores, strict=True)
                    if at is not None and float(at) == one.at
                ]
                if not same:
                    return
                pipe.multi()
                pipe.zrem(self._attention, *same)
                pipe.execute()
            except WatchError:
                return  # the next reader removes them

    def _last(self, key: str) -> str:
        with self._away():
            found = self._redis.xrevrange(key, count=1)
        return next((id_ for id_, _ in stream_entries(found)), NONE)
