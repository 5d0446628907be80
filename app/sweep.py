"""The sweeper: expires leases, repeats lost hints and delivers overdue messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from app.core.addresses import SessionRef
from app.core.records import Reply, StepRecord
from app.engine import Engine
from app.errors import ExportOwed
from app.sessions.outbox import NEWER_MS
from app.store.store import Due
from leadhand.errors import (
    ProgramNewer,
    SessionUnknown,
    StoreAway,
    StoreFull,
    StoreReadOnly,
    StoreUnknown,
)

log = logging.getLogger(__name__)

#: Delay of an entry whose handling failed.
PUT_OFF_MS = 30_000
#: Minimum interval between sweeps of all processes together.
EVERY_MS = 900
BATCH = 100
#: Maximum leases whose owners are checked; the others expire by time.
MOST_GONE = 10_000
#: Maximum batches per sweep.
ROUNDS = 50
#: Maximum messages that free memory in one sweep of a full server.
MOST_ROOM = ROUNDS * BATCH


class Swept(NamedTuple):
    """The number of entries that a sweep handled."""

    leases: int = 0
    ready: int = 0
    errands: int = 0


class HeldStep(NamedTuple):
    """A running step, and the worker process that owns its attempt."""

    ref: SessionRef
    address: str
    owner: str


def sweep(engine: Engine) -> Swept:
    """Expire overdue attempts, repeat lost messages and run the outbox, unless just done elsewhere.

    Raises StoreUnknown. A full server refuses most writes, also those that postpone an entry. Then
    only the messages that free memory are handled, regardless of their order, and the rest later.
    """
    engine.guard.require()
    try:
        swept = _handle_all(engine)
        engine.troubles.redis_writes()
        return swept
    except StoreReadOnly:
        engine.troubles.redis_refuses("cannot write to its disk, which is full or failing")
        raise
    except StoreFull as error:
        engine.troubles.redis_refuses("is full; delete sessions, or give it more memory")
        log.warning("handling only messages that free memory", extra={"why": str(error)})
        return _make_room(engine)


def _make_room(engine: Engine) -> Swept:
    answer = _due(engine, every_ms=0, limit=MOST_ROOM, room=True)
    for errand in answer.errands:
        with suppress(StoreFull), _postpone_failures(engine, "errands", errand):
            engine.outbox.run(errand)
    return Swept(errands=len(answer.errands))


def _handle_all(engine: Engine) -> Swept:
    total = Swept()
    answer = _due(engine, every_ms=EVERY_MS)
    for _ in range(ROUNDS):
        if not (answer.leases or answer.ready or answer.errands):
            break
        _handle(engine, answer)
        found = (len(answer.leases), len(answer.ready), len(answer.errands))
        total = Swept(*(a + b for a, b in zip(total, found, strict=True)))
        if max(found) < BATCH:
            break
        answer = _due(engine, every_ms=0)
    return total


def _due(engine: Engine, *, every_ms: int, limit: int | None = None, room: bool = False) -> Reply:
    grace_ms = engine.settings.lease_ms
    try:
        answer = engine.store.due(
            every_ms=every_ms, limit=limit or BATCH, grace_ms=grace_ms, room=room
        )
    except StoreUnknown:
        engine.guard.check()  # raises the alarm for the whole process
        raise
    if answer.word == "other_store":
        engine.guard.check()  # raises, unless the store was accepted meanwhile
    else:
        engine.guard.record_sweeps(answer.sweeps)
    return answer


def _handle(engine: Engine, answer: Reply) -> None:
    for member in answer.leases:
        with _postpone_failures(engine, "leases", member):
            engine.expiry.expire(*_split(member))
    depths: dict[str, int] = {}
    workers = engine.fleet.inventories() if answer.ready else []
    for member in answer.ready:
        with _postpone_failures(engine, "ready", member):
            ref, address = _split(member)
            if engine.local_work.stop_if_abandoned(ref, address):
                continue
            engine.control.choose_again(ref, workers)
            engine.transitions.rehint(ref, address, depth=engine.expiry.depth(ref, address, depths))
    for errand in answer.errands:
        with _postpone_failures(engine, "errands", errand):
            engine.outbox.run(errand)


def attempts_of_dead_workers(engine: Engine, is_dead: Callable[[str], bool]) -> list[HeldStep]:
    """Returns the running steps whose worker processes have died. Raises StoreAway."""
    found = []
    for stood in engine.store.overview().next("leases", MOST_GONE):
        step = StepRecord.model_validate_json(stood.record)
        if step.state == "running" and step.owner is not None and is_dead(step.owner):
            found.append(HeldStep(stood.ref, stood.address, step.owner))
    return found


def expire_attempt(engine: Engine, held: HeldStep) -> None:
    """Expire a dead worker's attempt before its lease ends, if it still owns the step."""
    with _postpone_failures(engine, "leases", held.ref.member + held.address):
        engine.expiry.expire(held.ref, held.address, gone=held.owner)


@contextmanager
def _postpone_failures(engine: Engine, due: Due, member: str) -> Iterator[None]:
    """Log and postpone an entry whose handling fails, so that the others are still handled.

    An entry of a deleted session is removed. A program that only a newer version can read is left
    to a newer sweeper.
    """
    try:
        yield
    except StoreAway:
        raise
    except SessionUnknown:
        engine.store.remove_due(due, member)
    except ExportOwed as error:
        log.warning("a session is kept", extra={"session": error.session, "why": error.why})
        there_is = engine.settings.export_dir is not None
        engine.store.postpone(due, member, PUT_OFF_MS if there_is else NEWER_MS)
    except ProgramNewer as error:
        log.info("left to a newer version", extra={"member": member, "why": str(error)})
        engine.store.postpone(due, member, NEWER_MS)
    except Exception:
        log.exception("postponed", extra={"due": due, "member": member})
        engine.store.postpone(due, member, PUT_OFF_MS)


def _split(member: str) -> tuple[SessionRef, str]:
    session, root, address = member.split("|", 2)
    return SessionRef(session, root), address
