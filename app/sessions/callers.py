"""Compares what tokens of bodies say with the records in the store."""

from __future__ import annotations

from app.context import Context
from app.core.addresses import SessionRef
from app.core.states import SessionStatus
from app.errors import CapabilityRefused
from app.security.signatures import Caller


def is_current(engine: Context, caller: Caller) -> bool:
    """Whether the attempt that a step token was made for still owns its step.

    Of a session-long token: whether its session is active, and never failed since.
    """
    ref = engine.store.ref(caller.session)
    if ref is None:
        return False
    if caller.is_of_work:
        created = engine.store.values(ref, "session", ["created"]).get("created")
        return created is not None and int(created) == caller.fence
    if caller.is_of_session:
        return _life_of(engine, ref) == caller.fence
    step = engine.store.steps(ref, [caller.address]).get(caller.address)
    return step is not None and step.state == "running" and step.fence == caller.fence


def find_session_caller(engine: Context, attempt: Caller) -> Caller:
    """Return a running attempt's session-long identity, else raise CapabilityRefused."""
    ref = engine.store.ref(attempt.session)
    life = _life_of(engine, ref) if ref is not None and is_current(engine, attempt) else None
    if life is None:
        raise CapabilityRefused("the attempt that asks for its session's token has ended")
    return Caller.of_session(attempt.session, life)


def _life_of(engine: Context, ref: SessionRef) -> int | None:
    """When in ms the session was created, or last resumed after a failure.

    None if it is not active.
    """
    found = engine.store.values(ref, "session", ["status", "created", "revived"])
    if found.get("status") != SessionStatus.ACTIVE:
        return None
    return int(found.get("revived") or found["created"])
