"""Reads the indexes of sessions: of all, by status, and by kind, label, name and folder.

They order sessions by creation. `facts` has a line for each fact of a session,
``fact<value<created<session``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, cast, get_args

from redis import Redis
from redis.client import Pipeline

from app.store.keys import Keys
from leadhand.contract.sessions import SessionKind

#: Each session has one line for its kind, so the lines of all kinds count the sessions.
KINDS: tuple[SessionKind, ...] = get_args(SessionKind)
#: Entries per read.
BATCH = 100
#: The latest time in a line of `facts`.
_LAST = 10**14 - 1
#: The most folders of a path that have lines in `facts`, from the top.
_DEEPEST = 32


class Place(NamedTuple):
    """A session's position in the order of creation (ms); ties are ordered by id."""

    at: float
    session: str


class Period(NamedTuple):
    """A range of creation times: from `first_ms` on, and before a place."""

    first_ms: int
    before: Place


class Sizes(NamedTuple):
    """How many sessions each index has in a period."""

    sessions: int
    #: Those of all statuses that were asked for.
    statuses: int
    #: By fact.
    facts: dict[str, int]


def folder_fact(path: str) -> str | None:
    """Returns the hash of a folder's path for an index; None for `/` and for very deep paths.

    >>> folder_fact("/work"), folder_fact("/")
    ('342f2f6ad141ea11', None)
    """
    if path == "/" or path.count("/") > _DEEPEST:
        return None
    return hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()[:16]


class SessionIndex:
    """Reads the indexes of one store."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away
        self._facts = keys.everywhere("facts")
        self._sessions = keys.everywhere("sessions")

    def walk(self, status: str | None, before: Place) -> Iterator[Place]:
        """Yield the sessions of a status (None: all) created before a point, newest first."""
        while found := self.page(status, before=before, limit=BATCH):
            yield from found
            before = found[-1]

    def page(self, status: str | None, *, before: Place, limit: int) -> list[Place]:
        """Read at most `limit` sessions of a status (None: all) before a point, newest first."""
        key = self._keys.status(status) if status else self._sessions
        start = 0
        while True:
            with self._away():
                rows = self._redis.zrevrangebyscore(
                    key, before.at, "-inf", start=start, num=limit, withscores=True
                )
            found = [Place(float(at), s) for s, at in cast("list[tuple[str, float]]", rows)]
            later = [place for place in found if place < before]
            if later or len(found) < limit:
                return later
            start += limit  # all of them have the same ms, and were returned before

    def walk_fact(self, fact: str, value: str, before: Place) -> Iterator[Place]:
        """Yield the sessions with this value of a fact, such as a label, newest first."""
        start = f"{fact}<{value}<"
        top = f"({start}{_digits(before.at)}<{before.session}"
        while True:
            with self._away():
                found = self._redis.zrevrangebylex(
                    self._facts, top, f"[{start}", start=0, num=BATCH
                )
            lines = cast("list[str]", found)
            for line in lines:
                at, _, session = line.removeprefix(start).partition("<")
                if at.isdecimal() and "<" not in session:  # a longer value begins like this one
                    yield Place(float(at), session)
            if len(lines) < BATCH:
                return
            top = f"({lines[-1]}"

    def sizes(
        self, period: Period, *, statuses: Collection[str], facts: Mapping[str, str]
    ) -> Sizes:
        """Count the sessions of a period: all, those in these statuses, and those of each fact."""
        first, last = period.first_ms, period.before.at
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.zcount(self._sessions, first, last)
            for status in statuses:
                pipe.zcount(self._keys.status(status), first, last)
            for fact, value in facts.items():
                self._count_lines(pipe, fact, value, first, last)
            total, *counts = cast("list[int]", pipe.execute())
        by_fact = dict(zip(facts, counts[len(statuses) :], strict=True))
        return Sizes(total, sum(counts[: len(statuses)]), by_fact)

    def _count_lines(
        self, pipe: Pipeline, fact: str, value: str, first: float, last: float
    ) -> None:
        start = f"{fact}<{value}<"
        pipe.zlexcount(self._facts, f"[{start}{_digits(first)}", f"({start}{_digits(last)}=")

    def unlist(self, place: Place, facts: Mapping[str, str]) -> None:
        """Remove a deleted session from the index of all sessions and from the index `facts`."""
        lines = [f"{f}<{value}<{_digits(place.at)}<{place.session}" for f, value in facts.items()]
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.zrem(self._sessions, place.session)
            if lines:
                pipe.zrem(self._facts, *lines)
            pipe.execute()


def _digits(at: float) -> str:
    """A time as in the lines of `facts`.

    >>> _digits(1_700_000_000_000.0)
    '01700000000000'
    """
    return f"{min(int(at), _LAST):014d}"
