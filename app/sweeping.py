"""The sweep: whatever is past its time is looked at again, by whoever looks first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from app.engine import Engine
from app.errands import NEWER_MS
from app.errors import ExportOwed, ProgramNewer, SessionUnknown, StoreAway, StoreFull
from app.keys import SessionRef
from app.records import Answer, StepRecord
from app.store import Due

log = logging.getLogger(__name__)

#: How long something that could not be looked at is left alone.
PUT_OFF_MS = 30_000
#: Somebody sweeps about this often, however many could.
EVERY_MS = 900
BATCH = 100
#: Of so many leases the owners are looked at; the rest are left to their time.
MOST_GONE = 10_000
#: After so many batches in a row the sweep lets others have a turn.
ROUNDS = 50
#: So many errands that make room are run in one sweep of a full server.
MOST_ROOM = ROUNDS * BATCH


class Swept(NamedTuple):
    """What one sweep looked at."""

    leases: int = 0
    ready: int = 0
    errands: int = 0


def sweep(engine: Engine) -> Swept:
    """Look at everything that is due; does nothing where somebody just did.

    A server that is full refuses nearly all of it, and cannot put it off: what makes room is done
    then, whatever stands before it, and the rest when there is some.
    """
    try:
        return _look_at_all(engine)
    except StoreFull as error:
        log.warning("only what makes room is done", extra={"why": str(error)})
        return _make_room(engine)


def _make_room(engine: Engine) -> Swept:
    answer = _due(engine, every_ms=0, limit=MOST_ROOM, room=True)
    for errand in answer.errands:
        with suppress(StoreFull), _the_rest_goes_on(engine, "errands", errand):
            engine.run_errand(errand)
    return Swept(errands=len(answer.errands))


def _look_at_all(engine: Engine) -> Swept:
    total = Swept()
    answer = _due(engine, every_ms=EVERY_MS)
    for _ in range(ROUNDS):
        if not (answer.leases or answer.ready or answer.errands):
            break
        _look_at(engine, answer)
        found = (len(answer.leases), len(answer.ready), len(answer.errands))
        total = Swept(*(a + b for a, b in zip(total, found, strict=True)))
        if max(found) < BATCH:
            break
        answer = _due(engine, every_ms=0)
    return total


def _due(engine: Engine, *, every_ms: int, limit: int | None = None, room: bool = False) -> Answer:
    grace_ms = engine.settings.lease_ms
    return engine.store.due(every_ms=every_ms, limit=limit or BATCH, grace_ms=grace_ms, room=room)


def _look_at(engine: Engine, answer: Answer) -> None:
    for member in answer.leases:
        with _the_rest_goes_on(engine, "leases", member):
            engine.expire(*_parted(member))
    depths: dict[str, int] = {}
    workers = engine.workers() if answer.ready else []
    for member in answer.ready:
        with _the_rest_goes_on(engine, "ready", member):
            ref, address = _parted(member)
            engine.choose_again(ref, workers)
            engine.rehint(ref, address, depth=engine.depth(ref, address, depths))
    for errand in answer.errands:
        with _the_rest_goes_on(engine, "errands", errand):
            engine.run_errand(errand)


def give_up_gone(engine: Engine, is_gone: Callable[[str], bool]) -> int:
    """Expire the attempts of workers that are known to be no more; no lease is waited for."""
    words: list[str] = []
    for stood in engine.store.looks().next("leases", MOST_GONE):
        step = StepRecord.model_validate_json(stood.record)
        if step.state == "running" and step.owner is not None and is_gone(step.owner):
            with _the_rest_goes_on(engine, "leases", stood.ref.member + stood.address):
                words.append(engine.expire(stood.ref, stood.address, gone=step.owner).word)
    return len(words) - words.count("alive")


@contextmanager
def _the_rest_goes_on(engine: Engine, due: Due, member: str) -> Iterator[None]:
    """What cannot be looked at is put off and told; nothing that stands behind it waits for it.

    What is due in a session that was deleted is due no more. An older sweeper may also meet a
    program that it cannot read: a newer one will.
    """
    try:
        yield
    except StoreAway:
        raise
    except SessionUnknown:
        engine.store.due_no_more(due, member)
    except ExportOwed as error:
        log.warning("a session stays", extra={"session": error.session, "why": error.why})
        there_is = engine.settings.export_dir is not None
        engine.store.put_off(due, member, PUT_OFF_MS if there_is else NEWER_MS)
    except ProgramNewer as error:
        log.info("left to a newer version", extra={"member": member, "why": str(error)})
        engine.store.put_off(due, member, NEWER_MS)
    except Exception:
        log.exception("put off", extra={"due": due, "member": member})
        engine.store.put_off(due, member, PUT_OFF_MS)


def _parted(member: str) -> tuple[SessionRef, str]:
    session, root, address = member.split("|", 2)
    return SessionRef(session, root), address
