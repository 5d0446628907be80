"""Reads at once what the view of one session shows, and the indexes of sessions.

The indexes order sessions by creation. `facts` has a line for each fact of a session,
``fact<value<created<session``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, cast, get_args

from redis import Redis
from redis.client import Pipeline

from app.core.addresses import SessionRef
from app.core.records import StepRecord, TurnRecord
from app.store.errors import Away, StorePart
from app.store.keys import Keys
from app.store.script_runner import Scripts, decoded_map, ms_of_time
from leadhand.contract.sessions import SessionKind
from leadhand.models.views.fleet import WorkerView

#: The most sessions whose records are read in one round trip.
AT_ONCE = 100
Commands = Sequence[tuple[str, ...]]
#: Each session has one line for its kind, so the lines of all kinds count the sessions.
KINDS: tuple[SessionKind, ...] = get_args(SessionKind)
#: Entries per read.
BATCH = 100
#: The latest time in a line of `facts`.
_LAST = 10**14 - 1
#: The most folders of a path that have lines in `facts`, from the top.
_DEEPEST = 32


class SessionRecords(NamedTuple):
    """The records of a session at about one moment, as far as a view shows them."""

    now_ms: int
    warnings: list[str]
    #: The first addresses of each kind.
    running: list[str]
    parked: list[str]
    live: list[str]
    #: How many there are in all.
    parked_count: int
    live_count: int
    #: The records of those that are listed.
    steps: dict[str, StepRecord]
    #: The newest run of each named node, and its turn; '' is the root's.
    runs: dict[str, int]
    turns: dict[str, TurnRecord]

    def steps_of(self, addresses: Sequence[str]) -> dict[str, StepRecord]:
        """Return the records of these steps, without those that are still pending."""
        return {a: self.steps[a] for a in addresses if a in self.steps}


class CreatedSession(NamedTuple):
    """What the process that has just created a session knows of it, so that it is not read."""

    ref: SessionRef
    #: The outermost nodes of its program.
    nodes: Sequence[str]
    #: The steps for which messages were sent.
    steps: Sequence[str]
    #: The live workers when it was submitted.
    workers: Sequence[WorkerView]


class SessionReads:
    """Reads sessions for their views: one in two or three round trips, a new one in one."""

    def __init__(
        self,
        scripts: Scripts,
        keys: Keys,
        away: Away,
        clock: Callable[[], int] | None,
    ) -> None:
        self._scripts = scripts
        self._keys = keys
        self._away = away
        self._clock = clock

    def find(self, session: str) -> tuple[SessionRef, dict[str, str]] | None:
        """Read a session's reference and hash; None if the session does not exist."""
        guess = SessionRef(session, session)
        with self._away():
            root, fields = self._scripts.ask([("GET", self._keys.id(session)), self._hash(guess)])
            if root is None:
                return None
            ref = SessionRef(session, cast("bytes", root).decode())
            if ref != guess:
                (fields,) = self._scripts.ask([self._hash(ref)])
        found = decoded_map(fields)
        return (ref, found) if "status" in found else None

    def records(
        self, asked: Sequence[tuple[SessionRef, Sequence[str]]], *, most: int
    ) -> list[SessionRecords]:
        """Read what views show of several sessions, such as steps, turns and warnings.

        `most` limits the steps of each; turns are those of the given nodes. Takes two
        round trips for each AT_ONCE sessions.
        """
        found: list[SessionRecords] = []
        for start in range(0, len(asked), AT_ONCE):
            part = asked[start : start + AT_ONCE]
            replies = self._ask_each([self._commands(*one, most) for one in part])
            firsts = [_First.of(*one, r) for one, r in zip(part, replies, strict=True)]
            found += self._complete(firsts)
        return found

    def created(
        self, made: CreatedSession, *, most: int
    ) -> tuple[dict[str, str], SessionRecords] | None:
        """Read the hash and the records of a new session at once; None if it does not exist.

        Steps other than those that it began with take a further round trip.
        """
        ref, nodes, steps = made.ref, made.nodes, made.steps
        names = [("HMGET", self._keys.part(ref, "steps"), *steps)] if steps else []
        ((fields,), first, read) = self._ask_each(
            [[self._hash(ref)], self._commands(ref, nodes, most), names]
        )
        decoded = decoded_map(fields)
        if "status" not in decoded:
            return None
        texts = cast("list[bytes | None]", read[0]) if steps else []
        known = dict(zip(steps, texts, strict=True))
        (records,) = self._complete([_First.of(ref, nodes, first)._replace(known=known)])
        return decoded, records

    def _commands(self, ref: SessionRef, nodes: Sequence[str], most: int) -> Commands:
        part, last = self._keys.part, str(most - 1)
        sets = ("running", "parked", "live")
        return [
            ("TIME",),
            ("LRANGE", part(ref, "warnings"), "0", last),
            *[("ZRANGE", part(ref, one), "0", last) for one in sets],
            *[("ZCARD", part(ref, one)) for one in sets[1:]],
            ("HMGET", part(ref, "turns"), "", *_first_turns(nodes)),
            *([("HMGET", part(ref, "runs"), *nodes)] if nodes else []),
        ]

    def _complete(self, firsts: Sequence[_First]) -> list[SessionRecords]:
        """Read the steps and later turns that the first replies name."""
        wanted = [
            [
                (part, self._keys.part(first.ref, part), names)
                for part, names in (("steps", first.unread), ("turns", first.later_turns))
                if names
            ]
            for first in firsts
        ]
        replies = self._ask_each([[("HMGET", key, *names) for _, key, names in w] for w in wanted])
        return [
            first.records(
                {
                    part: dict(zip(names, cast("list[bytes | None]", texts), strict=True))
                    for (part, _, names), texts in zip(asked, found, strict=True)
                },
                self._clock() if self._clock else first.now_ms,
            )
            for first, asked, found in zip(firsts, wanted, replies, strict=True)
        ]

    def _ask_each(self, each: Sequence[Commands]) -> list[Sequence[object]]:
        """The replies to several lists of commands, in one round trip; none for no commands."""
        commands = [command for one in each for command in one]
        with self._away():
            replies = iter(self._scripts.ask(commands) if commands else ())
        return [list(islice(replies, len(one))) for one in each]

    def _hash(self, ref: SessionRef) -> tuple[str, str]:
        return "HGETALL", self._keys.part(ref, "session")


class _First(NamedTuple):
    """The first replies about a session, which name the steps and turns to be read."""

    ref: SessionRef
    now_ms: int
    warnings: list[str]
    running: list[str]
    parked: list[str]
    live: list[str]
    parked_count: int
    live_count: int
    runs: dict[str, int]
    turns: dict[str, bytes | None]
    #: Steps that were read already.
    known: Mapping[str, bytes | None] = {}

    @classmethod
    def of(cls, ref: SessionRef, nodes: Sequence[str], replies: Sequence[object]) -> _First:
        """The replies to the commands for these nodes."""
        time, lines, *found = replies
        running, parked, live = (_texts(one) for one in found[:3])
        parked_count, live_count = cast("list[int]", found[3:5])
        numbers = cast("list[bytes | None]", found[6]) if nodes else []
        runs = {node: int(n or 1) for node, n in zip(nodes, numbers, strict=True)}
        texts = cast("list[bytes | None]", found[5])
        turns = dict(zip(["", *_first_turns(nodes)], texts, strict=True))
        now_ms, warnings = ms_of_time(time), _texts(lines)
        return cls(
            ref, now_ms, warnings, running, parked, live, parked_count, live_count, runs, turns
        )

    @property
    def shown(self) -> set[str]:
        return {*self.running, *self.parked, *self.live}

    @property
    def unread(self) -> list[str]:
        return sorted(self.shown - self.known.keys())

    @property
    def later_turns(self) -> list[str]:
        return [f"{node}~{run}" for node, run in self.runs.items() if run > 1]

    def records(
        self, read: Mapping[str, Mapping[str, bytes | None]], now_ms: int
    ) -> SessionRecords:
        """The records, with the steps and turns that were read after these replies."""
        steps = {**self.known, **read.get("steps", {})}
        return SessionRecords(
            now_ms,
            self.warnings,
            self.running,
            self.parked,
            self.live,
            self.parked_count,
            self.live_count,
            {
                address: StepRecord.model_validate_json(text)
                for address in sorted(self.shown)
                if (text := steps.get(address))
            },
            self.runs,
            _newest_turns({**self.turns, **read.get("turns", {})}, self.runs),
        )


def _newest_turns(
    texts: Mapping[str, bytes | None], runs: Mapping[str, int]
) -> dict[str, TurnRecord]:
    """The newest run of each opened turn, by node."""
    wanted = {"": ("", 1)} | {f"{node}~{run}": (node, run) for node, run in runs.items()}
    return {
        node: TurnRecord.model_validate_json(text).model_copy(update={"run": run})
        for turn, (node, run) in wanted.items()
        if (text := texts.get(turn)) is not None
    }


def _first_turns(nodes: Sequence[str]) -> list[str]:
    return [f"{node}~1" for node in nodes]


def _texts(found: object) -> list[str]:
    return [one.decode() for one in cast("list[bytes]", found)]


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


class SessionIndex(StorePart):
    """Reads the indexes of one store."""

    def __init__(self, redis: Redis, keys: Keys, away: Away) -> None:
        super().__init__(redis, keys, away)
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
