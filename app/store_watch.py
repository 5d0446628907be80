"""What a look at the whole fleet reads from Redis: bounded, whatever the number of sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

from redis import Redis

from app.keys import Keys, SessionRef
from app.program import path_of


class Stood(NamedTuple):
    """A step's record and its route as they lie there, and its session's place."""

    ref: SessionRef
    address: str
    record: str
    route: str
    place: str


class Past(NamedTuple):
    """How many entries a timed list has, how many are past a time, and the oldest one's time."""

    entries: int
    past: int
    oldest_ms: float | None


class Looks:
    """Reads in few round trips, each over at most so many entries."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def next(self, part: str, limit: int) -> list[Stood]:
        """The steps that come first in `leases` or `ready`."""
        with self._away():
            found = self._redis.zrange(self._keys.everywhere(part), 0, limit - 1)
        members = [member.split("|", 2) for member in cast("list[str]", found)]
        refs = [(SessionRef(session, root), address) for session, root, address in members]
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref, address in refs:
                pipe.hget(self._keys.part(ref, "steps"), address)
                pipe.hmget(self._keys.part(ref, "session"), ["program", "place"])
            answers = pipe.execute()
            for (_, address), (program, _) in zip(refs, answers[1::2], strict=True):
                pipe.hget(self._keys.program(program or ""), f"/{path_of(address)}")
            routes = pipe.execute()
        return [
            Stood(ref, address, record, route, place or "")
            for (ref, address), record, (_, place), route in zip(
                refs, answers[::2], answers[1::2], routes, strict=True
            )
            if record and route
        ]

    def past(self, part: str, now_ms: int) -> Past:
        """What is past its time in `leases` or `ready`."""
        key = self._keys.everywhere(part)
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.zcard(key)
            pipe.zcount(key, "-inf", now_ms)
            pipe.zrange(key, 0, 0, withscores=True)
            entries, past, first = pipe.execute()
        return Past(int(entries), int(past), float(first[0][1]) if past and first else None)

    def sizes(self, parts: Sequence[str]) -> dict[str, int]:
        """How much these sorted sets hold."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for part in parts:
                pipe.zcard(self._keys.everywhere(part))
            return dict(zip(parts, map(int, pipe.execute()), strict=True))

    def used(self) -> dict[str, int]:
        """What all sessions ever used, by counter."""
        with self._away():
            found = self._redis.hgetall(self._keys.everywhere("used"))
        return {name: int(number) for name, number in cast("dict[str, str]", found).items()}

    def newest(self, status: str, limit: int) -> list[SessionRef]:
        """The sessions that came into a status last, the last one first."""
        with self._away():
            found = self._redis.zrange(self._keys.status(status), 0, limit - 1, desc=True)
            sessions = cast("list[str]", found)
            roots = self._redis.mget([self._keys.id(s) for s in sessions]) if sessions else []
        pairs = zip(sessions, cast("list[str | None]", roots), strict=True)
        return [SessionRef(session, root) for session, root in pairs if root]

    def fields(self, refs: Sequence[SessionRef], fields: Sequence[str]) -> list[list[str | None]]:
        """These fields of each session."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref in refs:
                pipe.hmget(self._keys.part(ref, "session"), list(fields))
            return cast("list[list[str | None]]", pipe.execute())

    def last_entries(self, refs: Sequence[SessionRef], limit: int) -> list[str]:
        """The last entries of each session's ledger."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref in refs:
                pipe.lrange(self._keys.part(ref, "ledger"), -limit, -1)
            return [line for lines in cast("list[list[str]]", pipe.execute()) for line in lines]
