"""Bounded reads for the fleet overview, independent of the number of sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

from redis import Redis

from app.domain.addresses import path_of
from app.domain.ids import SessionRef
from app.store.errors import readable_replies
from app.store.keys import Keys


class StoredStep(NamedTuple):
    """A step's stored record and route, and its session's place."""

    ref: SessionRef
    address: str
    record: str
    route: str
    place: str


class OverdueCount(NamedTuple):
    """The size of a timed list, its number of overdue entries, and the oldest one's time."""

    entries: int
    past: int
    oldest_ms: float | None


class OverviewReads:
    """Reads with few round trips and bounded batches."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def next(self, part: str, limit: int) -> list[StoredStep]:
        """Read the first steps, with record and route, in the sorted set `leases` or `ready`.

        Those of a session with a key of a wrong type are left out, as in `fields` and others.
        """
        with self._away():
            found = self._redis.zrange(self._keys.everywhere(part), 0, limit - 1)
        members = [member.split("|", 2) for member in cast("list[str]", found)]
        refs = [(SessionRef(session, root), address) for session, root, address in members]
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref, address in refs:
                pipe.hget(self._keys.part(ref, "steps"), address)
                pipe.hmget(self._keys.part(ref, "session"), ["program", "place"])
            replies = readable_replies(pipe.execute(raise_on_error=False))
            sessions = [values or (None, None) for values in replies[1::2]]
            for (_, address), (program, _) in zip(refs, sessions, strict=True):
                pipe.hget(self._keys.program(program or ""), f"/{path_of(address)}")
            routes = readable_replies(pipe.execute(raise_on_error=False))
        return [
            StoredStep(ref, address, record, route, place or "")
            for (ref, address), record, (_, place), route in zip(
                refs, replies[::2], sessions, routes, strict=True
            )
            if record and route
        ]

    def past(self, part: str, now_ms: int) -> OverdueCount:
        """Count all and overdue entries of `leases` or `ready`, with the oldest overdue time."""
        key = self._keys.everywhere(part)
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.zcard(key)
            pipe.zcount(key, "-inf", now_ms)
            pipe.zrange(key, 0, 0, withscores=True)
            entries, past, first = pipe.execute()
        return OverdueCount(int(entries), int(past), float(first[0][1]) if past and first else None)

    def sizes(self, parts: Sequence[str]) -> dict[str, int]:
        """Count the entries of each of these sorted sets."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for part in parts:
                pipe.zcard(self._keys.everywhere(part))
            return dict(zip(parts, map(int, pipe.execute()), strict=True))

    def total_usage(self) -> dict[str, int]:
        """Read the total usage of all sessions, by counter."""
        with self._away():
            found = self._redis.hgetall(self._keys.everywhere("used"))
        return {name: int(number) for name, number in cast("dict[str, str]", found).items()}

    def newest_refs(self, status: str, limit: int) -> list[SessionRef]:
        """Read references to at most `limit` sessions with a status, newest first."""
        with self._away():
            found = self._redis.zrange(self._keys.status(status), 0, limit - 1, desc=True)
            sessions = cast("list[str]", found)
            roots = self._redis.mget([self._keys.id(s) for s in sessions]) if sessions else []
        pairs = zip(sessions, cast("list[str | None]", roots), strict=True)
        return [SessionRef(session, root) for session, root in pairs if root]

    def parked(self, refs: Sequence[SessionRef], limit: int) -> dict[SessionRef, list[str]]:
        """Read the addresses of the first parked (waiting) steps of each session."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref in refs:
                pipe.zrange(self._keys.part(ref, "parked"), 0, limit - 1)
            found = cast("list[list[str]]", pipe.execute())
        return dict(zip(refs, found, strict=True))

    def fields(self, refs: Sequence[SessionRef], fields: Sequence[str]) -> list[list[str | None]]:
        """Read these fields of each session's hash, None for a missing one, in the given order."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref in refs:
                pipe.hmget(self._keys.part(ref, "session"), list(fields))
            nothing: list[str | None] = [None] * len(fields)
            return [
                values or nothing for values in readable_replies(pipe.execute(raise_on_error=False))
            ]

    def last_entries(self, refs: Sequence[SessionRef], limit: int) -> list[str]:
        """Read the last `limit` entries of each session's ledger (JSON), as one list."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref in refs:
                pipe.lrange(self._keys.part(ref, "ledger"), -limit, -1)
            return [
                line
                for lines in readable_replies(pipe.execute(raise_on_error=False))
                for line in lines or ()
            ]
