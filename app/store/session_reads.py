"""Reads at once what the view of one session shows: each round trip costs as much as the view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

from app.domain.ids import SessionRef
from app.domain.records import StepRecord, TurnRecord
from app.store.keys import Keys
from app.store.script_runner import Scripts, decoded_map, ms_of_time
from leadhand.models.views import WorkerView


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
    """Reads sessions for their views, with two or three round trips each; new ones with one."""

    def __init__(
        self,
        scripts: Scripts,
        keys: Keys,
        away: Callable[[], AbstractContextManager[None]],
        clock: Callable[[], int] | None,
    ) -> None:
        self._scripts = scripts
        self._keys = keys
        self._away = away
        self._clock = clock

    def find(self, session: str) -> tuple[SessionRef, dict[str, str]] | None:
        """Read the hash of a session, whose root is mostly itself; None if it does not exist."""
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

    def records(self, ref: SessionRef, nodes: Sequence[str], *, most: int) -> SessionRecords:
        """Read the records that a view shows, of these nodes and at most so many steps."""
        with self._away():
            found = self._scripts.ask(self._commands(ref, nodes, most))
        return self._records(ref, nodes, found, {})

    def created(
        self, made: CreatedSession, *, most: int
    ) -> tuple[dict[str, str], SessionRecords] | None:
        """Read the hash and the records of a new session at once; None if it does not exist.

        Steps other than those that it began with take a further round trip.
        """
        ref, nodes, steps = made.ref, made.nodes, made.steps
        commands = [self._hash(ref), *self._commands(ref, nodes, most)]
        if steps:
            commands.append(("HMGET", self._keys.part(ref, "steps"), *steps))
        with self._away():
            fields, *found = self._scripts.ask(commands)
        read = cast("list[bytes | None]", found.pop()) if steps else []
        decoded = decoded_map(fields)
        if "status" not in decoded:
            return None
        known = dict(zip(steps, read, strict=True))
        return decoded, self._records(ref, nodes, found, known)

    def _commands(self, ref: SessionRef, nodes: Sequence[str], most: int) -> list[tuple[str, ...]]:
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

    def _records(
        self,
        ref: SessionRef,
        nodes: Sequence[str],
        replies: Sequence[object],
        known: Mapping[str, bytes | None],
    ) -> SessionRecords:
        """The records of the replies to `_commands`; steps that are not `known` are read."""
        time, lines, *found = replies
        turns = _first_turns(nodes)
        running, parked, live = (_texts(one) for one in found[:3])
        parked_count, live_count = cast("list[int]", found[3:5])
        numbers = cast("list[bytes | None]", found[6]) if nodes else []
        runs = {node: int(n or 1) for node, n in zip(nodes, numbers, strict=True)}
        again = [f"{node}~{run}" for node, run in runs.items() if run > 1]
        shown = {*running, *parked, *live}
        steps, newer = self._more(ref, sorted(shown - known.keys()), again)
        steps |= {address: known[address] for address in shown & known.keys()}
        first = dict(zip(["", *turns], cast("list[bytes | None]", found[5]), strict=True))
        return SessionRecords(
            self._clock() if self._clock else ms_of_time(time),
            _texts(lines),
            running,
            parked,
            live,
            parked_count,
            live_count,
            {a: StepRecord.model_validate_json(text) for a, text in steps.items() if text},
            runs,
            _newest_turns(first | newer, runs),
        )

    def _more(
        self, ref: SessionRef, steps: list[str], turns: list[str]
    ) -> tuple[dict[str, bytes | None], dict[str, bytes | None]]:
        """The records of these steps and of these later turns."""
        asked = [(part, names) for part, names in (("steps", steps), ("turns", turns)) if names]
        commands = [("HMGET", self._keys.part(ref, part), *names) for part, names in asked]
        with self._away():
            found = self._scripts.ask(commands) if commands else []
        read = {
            part: dict(zip(names, cast("list[bytes | None]", values), strict=True))
            for (part, names), values in zip(asked, found, strict=True)
        }
        return read.get("steps", {}), read.get("turns", {})

    def _hash(self, ref: SessionRef) -> tuple[str, str]:
        return "HGETALL", self._keys.part(ref, "session")


def _newest_turns(texts: dict[str, bytes | None], runs: dict[str, int]) -> dict[str, TurnRecord]:
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
