"""The only place that says chain and chord: from "these steps are ready" to Celery's canvas.

One iteration is ``chain(do, chord(checks, judge))``, a fan-out a chord of what is ready with what
joins it. All signatures are immutable and hold ids. A message is a hint: what it carries beyond
its own step travels on only as far as settle answered that it is ready.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from celery import Celery, signature
from celery.canvas import Signature

from app import decide
from app.keys import SessionRef
from app.program import Program, block_of
from app.records import Hint
from app.transitions import Standing
from tasks.celery_app import PRIORITIES
from tasks.sending import Letter, Post, new_id, post_of
from tasks.strays import standing

log = logging.getLogger(__name__)

#: The widest chord; the window of hints brings the rest.
WIDEST = 100
_ADDRESS = 2  # position of the address among a task's arguments
_CHORD = "celery.chord"


class Canvas:
    """Carries hints to workers as Celery messages."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._post = post_of(celery)

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        """Tell workers of ready steps. What cannot be sent now is sent by the sweep."""
        _sent(self._post, ref, self.build(ref, program, hints))

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

    def build(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> Iterator[Letter]:
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
                yield from _chord(header, _signature(body))

    def _chain(self, ref: SessionRef, program: Program, hint: Hint) -> Letter:
        """The step with what follows it alone: one step, or a chord of checks and their judge."""
        first = self._step(ref, hint)
        following = decide.following(program, hint.path)
        if following is None or "#" in hint.address:
            return first
        block = _block_around(hint.address)
        header = [self._follower(ref, program, hint, block + name) for name in following.header]
        if len(header) == 1:
            return first._replace(chain=[_signature(header[0])])
        if following.join is None:
            return first
        body = self._follower(ref, program, hint, block + following.join)
        return first._replace(chain=[_chord_signature(header, body)])

    def _step(self, ref: SessionRef, hint: Hint) -> Letter:
        return self._letter(ref, hint.address, hint.action, hint.queue, hint.priority)

    def _follower(self, ref: SessionRef, program: Program, hint: Hint, address: str) -> Letter:
        step = program.step(address)
        _, at, place = hint.queue.partition("@")
        queue = decide.queue_of(step) + at + place
        return self._letter(ref, address, step.action, queue, hint.priority)

    def _letter(
        self, ref: SessionRef, address: str, action: str, queue: str, priority: int
    ) -> Letter:
        arguments = (ref.id, ref.root, address)
        return Letter(f"leadhand.{action}", arguments, queue, priority, new_id())


def _signature(letter: Letter) -> dict[str, Any]:
    """A task within a message, as Celery writes it."""
    return {
        "task": letter.task,
        "args": letter.arguments,
        "kwargs": {},
        "options": {"queue": letter.queue, "priority": letter.priority, "task_id": letter.id},
        "subtask_type": None,
        "immutable": True,
    }


def _chord_signature(header: Sequence[Letter], body: Letter) -> dict[str, Any]:
    """A chord within a message, as Celery writes it."""
    group = {
        "task": "celery.group",
        "args": [],
        "kwargs": {"tasks": [_signature(letter) for letter in header]},
        "options": {},
        "subtask_type": "group",
        "immutable": False,
    }
    return {
        "task": _CHORD,
        "args": [],
        "kwargs": {"kwargs": {}, "header": group, "body": _signature(body)},
        "options": {},
        "subtask_type": "chord",
        "immutable": False,
    }


def _chord(header: Sequence[Letter], body: Mapping[str, Any]) -> Iterator[Letter]:
    """The messages of a chord: each of the header carries its body."""
    group = new_id()
    for place, letter in enumerate(header):
        yield letter._replace(chord=body, group=group, place=place)


def _depth(channel: Any, queue: str) -> int:
    """What stands in a queue, of all priorities."""
    lists = [channel._q_for_pri(queue, priority) for priority in PRIORITIES]
    return sum(int(channel.client.llen(name)) for name in lists)


class Travels(NamedTuple):
    """Of a message's own canvas: what goes on now, and what is left to publish."""

    letters: list[Letter]
    rest: list[Hint]


def travels(request: Any, celery: Celery, hints: Sequence[Hint]) -> Travels:
    """Compare what a message carries with what its settle released.

    What its chain would send next is sent by us, or not at all: it is cut in any case.
    """
    released = {hint.address for hint in hints}
    carried, request.chain = _carried(request.chain), None
    onward = carried if {letter.arguments[_ADDRESS] for letter in carried} <= released else []
    by_itself = {letter.arguments[_ADDRESS] for letter in onward}
    by_itself.add(_body_address(request, celery) or "")
    return Travels(onward, [hint for hint in hints if hint.address not in by_itself])


def go_on(ref: SessionRef, celery: Celery, letters: Sequence[Letter]) -> None:
    """Send what a message carried. What cannot be sent now is sent by the sweep."""
    _sent(post_of(celery), ref, letters)


def _sent(post: Post, ref: SessionRef, letters: Iterable[Letter]) -> None:
    try:
        post.send(list(letters))
    except Exception as error:  # noqa: BLE001 - a broker that is away has many names in kombu
        log.warning("hints not sent", extra={"session": ref.id, "why": type(error).__name__})


def remember(request: Any, hints: Sequence[Hint]) -> None:
    """Leave word for the backend of what this settle released."""
    request.released = {hint.address for hint in hints}


def body_of(request: Any, celery: Celery) -> Signature | None:
    """The chord body of a message, where its settle released the body's step."""
    address = _body_address(request, celery)
    if address is None or address not in (getattr(request, "released", None) or ()):
        return None
    return signature(request.chord, app=celery)


def _carried(chain: Sequence[Mapping[str, Any]] | None) -> list[Letter]:
    """What the message's chain would send next: one task, or the header of a chord."""
    if not chain:
        return []
    following = chain[-1]
    if following["task"] != _CHORD:
        return [_letter_of(following)]
    header, body = following["kwargs"]["header"], following["kwargs"]["body"]
    tasks = header["kwargs"]["tasks"] if isinstance(header, Mapping) else header
    return list(_chord([_letter_of(task) for task in tasks], body))


def _letter_of(task: Mapping[str, Any]) -> Letter:
    options = task["options"]
    return Letter(
        task["task"],
        task["args"],
        options["queue"],
        options.get("priority", 0),
        options.get("task_id") or new_id(),
    )


def _body_address(request: Any, celery: Celery) -> str | None:
    if not request.chord:
        return None
    return str(signature(request.chord, app=celery).args[_ADDRESS])


def _block_around(address: str) -> str:
    """The block that a step or an item's for_each stands in, ready to be followed by a name."""
    block = block_of(address.partition("#")[0])
    return f"{block}/" if block else ""
