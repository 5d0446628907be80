"""The sweep: whatever is past its time is looked at again, by whoever looks first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from app.engine import Engine
from app.errors import SessionUnknown
from app.keys import SessionRef
from app.store import Answer

#: Somebody sweeps about this often, however many could.
EVERY_MS = 900
BATCH = 100
#: After so many batches in a row the sweep lets others have a turn.
ROUNDS = 50


class Swept(NamedTuple):
    """What one sweep looked at."""

    leases: int = 0
    ready: int = 0
    errands: int = 0


def sweep(engine: Engine) -> Swept:
    """Look at everything that is due; does nothing where somebody just did."""
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


def _due(engine: Engine, *, every_ms: int) -> Answer:
    grace_ms = engine.settings.lease_ms
    return engine.store.due(every_ms=every_ms, limit=BATCH, grace_ms=grace_ms)


def _look_at(engine: Engine, answer: Answer) -> None:
    for ref, address in _members(answer.leases):
        with _gone_is_forgotten(engine, ref, address):
            engine.expire(ref, address)
    depths: dict[str, int] = {}
    for ref, address in _members(answer.ready):
        with _gone_is_forgotten(engine, ref, address):
            engine.rehint(ref, address, depth=engine.depth(ref, address, depths))
    for errand in answer.errands:
        engine.run_errand(errand)


@contextmanager
def _gone_is_forgotten(engine: Engine, ref: SessionRef, address: str) -> Iterator[None]:
    """What is due in a session that was deleted is due no more."""
    try:
        yield
    except SessionUnknown:
        engine.store.forget_due(ref, address)


def _members(members: Iterable[str]) -> Iterator[tuple[SessionRef, str]]:
    for member in members:
        session, root, address = member.split("|", 2)
        yield SessionRef(session, root), address
