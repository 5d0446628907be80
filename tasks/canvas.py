"""Builds Celery chains and chords from hints for ready steps, and stores no results.

One iteration is ``chain(do, chord(checks, judge))``; a fan-out is a chord of the ready steps and
their join. All signatures are immutable and contain only ids. A message is a hint: the rest of its
canvas is sent on only if settle replied that those steps are ready.

Celery's own chord counts arrivals in Redis, and loses the body if a worker dies between the count
and the publish. Here the join is part of the session's state. The worker whose settle released the
body's step publishes it. If that worker dies first, the sweep finds the step ready.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from celery import Celery, signature
from celery.backends.base import BaseBackend
from celery.canvas import Signature

from app.core import routing
from app.core.addresses import SessionRef, block_of
from app.core.program import Program
from app.core.records import Hint, QueueDepth
from tasks.celery_app import PRIORITIES
from tasks.publisher import Letter, Publisher, new_id, publisher_of
from tasks.stale_messages import scan_queues

log = logging.getLogger(__name__)
#: Maximum width of a chord; the window of hints limits the rest.
WIDEST = 100
_ADDRESS = 2  # position of the address among a task's arguments
_CHORD = "celery.chord"


class Canvas:
    """Sends hints to workers as Celery messages."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._post = publisher_of(celery)

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        """Send Celery messages for ready steps; errors are logged, and the sweep repeats them."""
        _send(self._post, ref, self.build(ref, program, hints))

    def publish_all(self, batch: Sequence[tuple[SessionRef, Program, Sequence[Hint]]]) -> None:
        """Send the Celery messages for ready steps of several sessions in one write."""
        if batch:
            letters = [letter for each in batch for letter in self.build(*each)]
            _send(self._post, batch[0][0], letters)

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        """Return the number of messages in each queue; empty if the broker is unreachable."""
        try:
            with self._celery.connection_for_read() as connection:
                channel: Any = connection.default_channel
                return {queue: _depth(channel, queue) for queue in queues}
        except Exception as error:  # noqa: BLE001 - see publish
            log.warning("queues not asked", extra={"why": type(error).__name__})
            return {}

    def strays(
        self, gone: Callable[[str, Sequence[str]], set[str]], *, drop: bool
    ) -> Sequence[QueueDepth]:
        """Count messages per queue, and those of deleted sessions (`drop` removes); [] if away."""
        try:
            with self._celery.connection_for_read() as connection:
                return list(scan_queues(connection.default_channel, gone, drop=drop))
        except Exception as error:  # noqa: BLE001 - see publish
            log.warning("queues not asked", extra={"why": type(error).__name__})
            return []

    def build(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> Iterator[Letter]:
        """Yield Celery messages for ready steps: chords if a common step follows, else chains."""
        meeting: dict[tuple[str, str], list[Hint]] = defaultdict(list)
        for hint in hints:
            joined = routing.join_step(program, hint.path)
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
        """A message for a step, with the step or chord that follows it directly."""
        first = self._step(ref, hint)
        following = routing.following(program, hint.path)
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
        queue = routing.queue_of(step) + at + place
        return self._letter(ref, address, step.action, queue, hint.priority)

    def _letter(
        self, ref: SessionRef, address: str, action: str, queue: str, priority: int
    ) -> Letter:
        arguments = (ref.id, ref.root, address)
        return Letter(f"leadhand.{action}", arguments, queue, priority, new_id())


def _signature(letter: Letter) -> dict[str, Any]:
    """A task signature within a message, in Celery's format."""
    return {
        "task": letter.task,
        "args": letter.arguments,
        "kwargs": {},
        "options": {"queue": letter.queue, "priority": letter.priority, "task_id": letter.id},
        "subtask_type": None,
        "immutable": True,
    }


def _chord_signature(header: Sequence[Letter], body: Letter) -> dict[str, Any]:
    """A chord signature within a message, in Celery's format."""
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
    """The messages of a chord: each header task contains the body."""
    group = new_id()
    for place, letter in enumerate(header):
        yield letter._replace(chord=body, group=group, place=place)


def _depth(channel: Any, queue: str) -> int:
    """The number of messages in a queue, of all priorities."""
    lists = [channel._q_for_pri(queue, priority) for priority in PRIORITIES]
    return sum(int(channel.client.llen(name)) for name in lists)


class CanvasSplit(NamedTuple):
    """The part of a message's canvas that is sent on, and the hints left to publish."""

    letters: list[Letter]
    rest: list[Hint]


def split_canvas(request: Any, celery: Celery, hints: Sequence[Hint]) -> CanvasSplit:
    """Takes the rest of a message's chain: returns its messages if ready, and other ready steps.

    The rest of the chain is removed from the request, so that only the caller sends it.
    """
    released = {hint.address for hint in hints}
    following, request.chain = _next_in_chain(request.chain), None
    addresses = {letter.arguments[_ADDRESS] for letter in following}
    onward = following if addresses <= released else []
    by_itself = {letter.arguments[_ADDRESS] for letter in onward}
    by_itself.add(_body_address(request, celery) or "")
    return CanvasSplit(onward, [hint for hint in hints if hint.address not in by_itself])


def send_on(ref: SessionRef, celery: Celery, letters: Sequence[Letter]) -> None:
    """Send the messages of the rest of a chain; errors are logged, and the sweep repeats them."""
    _send(publisher_of(celery), ref, letters)


def _send(post: Publisher, ref: SessionRef, letters: Iterable[Letter]) -> None:
    try:
        post.send(list(letters))
    except Exception as error:  # noqa: BLE001 - kombu raises many types for an unreachable broker
        log.warning("hints not sent", extra={"session": ref.id, "why": type(error).__name__})


def remember(request: Any, hints: Sequence[Hint]) -> None:
    """Store the addresses of released steps on the Celery request, for the result backend."""
    request.released = {hint.address for hint in hints}


def body_of(request: Any, celery: Celery) -> Signature | None:
    """Returns the chord body of a Celery request if this task made its step ready, else None."""
    address = _body_address(request, celery)
    if address is None or address not in (getattr(request, "released", None) or ()):
        return None
    return signature(request.chord, app=celery)


def _next_in_chain(chain: Sequence[Mapping[str, Any]] | None) -> list[Letter]:
    """The next messages of a chain: one task, or the header of a chord."""
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
    """The prefix of the addresses in the block of a step or for_each."""
    block = block_of(address.partition("#")[0])
    return f"{block}/" if block else ""


class SettledBackend(BaseBackend):
    """A result backend without storage and counters."""

    app: Celery

    def apply_chord(self, *_: Any, **__: Any) -> None:
        """Do nothing: chords need no preparation here."""

    def on_chord_part_return(self, request: Any, *_: Any, **__: Any) -> None:
        """Publish a chord's body (the step that joins it) if this task made that step ready."""
        body = body_of(request, self.app)
        if body is not None:
            body.apply_async()

    def store_result(self, task_id: str, result: Any, state: str, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        """Store nothing and return the result unchanged: the outcome is already in the store."""
        return result

    def get_task_meta(self, task_id: str, cache: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the state PENDING for every task, since results are not stored here."""
        return {"status": "PENDING", "result": None, "task_id": task_id}

    def process_cleanup(self) -> None:
        """Do nothing: there are no connections."""

    def ensure_chords_allowed(self) -> None:
        """Do nothing: this backend supports chords."""

    def as_uri(self, include_password: bool = False) -> str:  # noqa: ARG002
        """Return `settled://`, the name of this backend in Celery's start message."""
        return "settled://"
