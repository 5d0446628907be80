"""The only place that says chain and chord: from "these steps are ready" to Celery's canvas.

One iteration is ``chain(do, chord(checks, judge))``, a fan-out a chord of what is ready with what
joins it. All signatures are immutable and hold ids. A message is a hint: what it carries beyond
its own step travels on only as far as settle answered that it is ready.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from celery import Celery, chain, chord, signature
from celery.canvas import Signature

from app import decide
from app.keys import SessionRef
from app.program import Program, block_of
from app.records import Hint
from app.transitions import Standing
from tasks.celery_app import PRIORITIES
from tasks.strays import standing

log = logging.getLogger(__name__)

#: The widest chord; the window of hints brings the rest.
WIDEST = 100
_ADDRESS = 2  # position of the address among a task's arguments


class Canvas:
    """Carries hints to workers as Celery messages."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        """Tell workers of ready steps. What cannot be sent now is sent by the sweep."""
        try:
            for canvas in self.build(ref, program, hints):
                canvas.apply_async()
        except Exception as error:  # noqa: BLE001 - a broker that is away has many names in kombu
            log.warning("hints not sent", extra={"session": ref.id, "why": type(error).__name__})

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        """How many messages stand in each queue; what cannot be asked is taken for empty."""
        try:
            with self._celery.connection_for_read() as connection:
                channel: Any = connection.default_channel
                return {queue: _depth(channel, queue) for queue in queues}
        except Exception as error:  # noqa: BLE001 - see publish
            log.warning("queues not asked", extra={"why": type(error).__name__})
            return {}

    def strays(
        self, gone: Callable[[str, Sequence[str]], set[str]], *, drop: bool
    ) -> Sequence[Standing]:
        """Every queue with messages of ours; those for sessions that are gone are dropped if asked.

        A broker that cannot be asked is taken for empty.
        """
        try:
            with self._celery.connection_for_read() as connection:
                return list(standing(connection.default_channel, gone, drop=drop))
        except Exception as error:  # noqa: BLE001 - see publish
            log.warning("queues not asked", extra={"why": type(error).__name__})
            return []

    def build(
        self, ref: SessionRef, program: Program, hints: Sequence[Hint]
    ) -> Iterable[Signature]:
        """The canvas of these hints: chords of those that meet in one join, chains of the rest."""
        meeting: dict[tuple[str, str], list[Hint]] = defaultdict(list)
        for hint in hints:
            joined = decide.joined_by(program, hint.path)
            if joined is None:
                yield self._chain(ref, program, hint)
            else:
                meeting[(_block_around(hint.address), joined)].append(hint)
        for (block, joined), those in meeting.items():
            if len(those) == 1:
                yield self._chain(ref, program, those[0])
                continue
            for start in range(0, len(those), WIDEST):
                header = [self._step(ref, hint) for hint in those[start : start + WIDEST]]
                body = self._follower(ref, program, those[0], f"{block}{joined}")
                yield chord(header, body, app=self._celery)

    def _chain(self, ref: SessionRef, program: Program, hint: Hint) -> Signature:
        """The step with what follows it alone: one step, or a chord of checks and their judge."""
        first = self._step(ref, hint)
        following = decide.following(program, hint.path)
        if following is None or "#" in hint.address:
            return first
        block = _block_around(hint.address)
        header = [self._follower(ref, program, hint, block + name) for name in following.header]
        if following.join is None or len(header) == 1:
            return chain(first, header[0], app=self._celery) if len(header) == 1 else first
        body = self._follower(ref, program, hint, block + following.join)
        return chain(first, chord(header, body, app=self._celery), app=self._celery)

    def _step(self, ref: SessionRef, hint: Hint) -> Signature:
        return self._signature(ref, hint.address, hint.action, hint.queue, hint.priority)

    def _follower(self, ref: SessionRef, program: Program, hint: Hint, address: str) -> Signature:
        step = program.step(address)
        _, at, place = hint.queue.partition("@")
        queue = decide.queue_of(step) + at + place
        return self._signature(ref, address, step.action, queue, hint.priority)

    def _signature(
        self, ref: SessionRef, address: str, action: str, queue: str, priority: int
    ) -> Signature:
        task = f"leadhand.{action}"
        arguments = (ref.id, ref.root, address)
        options = {"queue": queue, "priority": priority}
        return signature(task, args=arguments, immutable=True, app=self._celery, options=options)


def _depth(channel: Any, queue: str) -> int:
    """What stands in a queue, of all priorities."""
    lists = [channel._q_for_pri(queue, priority) for priority in PRIORITIES]
    return sum(int(channel.client.llen(name)) for name in lists)


class Travels(NamedTuple):
    """Of a message's own canvas: what goes on by itself, and what is left to publish."""

    chain_goes_on: bool
    rest: list[Hint]


def travels(request: Any, celery: Celery, hints: Sequence[Hint]) -> Travels:
    """Compare what a message carries with what its settle released."""
    released = {hint.address for hint in hints}
    carried = _carried(request, celery)
    goes_on = bool(carried) and carried <= released
    by_itself = carried if goes_on else set()
    body = _body_address(request, celery)
    if body in released:
        by_itself = by_itself | {body}
    return Travels(goes_on, [hint for hint in hints if hint.address not in by_itself])


def cut(request: Any) -> None:
    """Keep the message's chain from going on."""
    request.chain = None


def remember(request: Any, hints: Sequence[Hint]) -> None:
    """Leave word for the backend of what this settle released."""
    request.released = {hint.address for hint in hints}


def body_of(request: Any, celery: Celery) -> Signature | None:
    """The chord body of a message, where its settle released the body's step."""
    address = _body_address(request, celery)
    if address is None or address not in (getattr(request, "released", None) or ()):
        return None
    return signature(request.chord, app=celery)


def _carried(request: Any, celery: Celery) -> set[str]:
    """The addresses that the message's chain would send next."""
    if not request.chain:
        return set()
    following: Any = signature(request.chain[-1], app=celery)
    steps = following.tasks if following.task == "celery.chord" else [following]
    steps = getattr(steps, "tasks", steps)
    return {signature(step, app=celery).args[_ADDRESS] for step in steps}


def _body_address(request: Any, celery: Celery) -> str | None:
    if not request.chord:
        return None
    return str(signature(request.chord, app=celery).args[_ADDRESS])


def _block_around(address: str) -> str:
    """The block that a step or an item's for_each stands in, ready to be followed by a name."""
    block = block_of(address.partition("#")[0])
    return f"{block}/" if block else ""
