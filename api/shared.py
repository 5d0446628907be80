"""Serves the operations on what a tree of sessions shares: named locks and values."""

from __future__ import annotations

from flask import Response

from api.auth import current_caller, current_visitor
from api.responses import answer
from api.serving import Call, serves
from app.engine import Engine
from app.operations.named_locks import LockCall
from leadhand.contract import shared
from leadhand.contract.bodies import NoQuery
from leadhand.models.views.shared import LockGrant, LockRelease, LockView, ValueHead, ValueView
from leadhand.models.views.view import Page


@serves(shared.LOCKS)
def locks(engine: Engine, call: Call, _: NoQuery) -> Page[LockView]:
    """Lists the named locks that the sessions of this session's tree share."""
    return Page[LockView](items=engine.shared.locks(call.session))


@serves(shared.ACQUIRE_LOCK)
def acquire(engine: Engine, call: Call, asked: shared.Acquire) -> Response:
    """Takes a named lock, or with `queue` joins its queue; does not block."""
    grant = engine.locks.acquire(
        call.session,
        asked.name,
        _holder(asked.holder or ""),
        ttl_s=asked.ttl_s,
        queue=asked.queue,
    )
    return answer(grant, 200 if grant.state == "held" else 202)


@serves(shared.RENEW_LOCK)
def renew(engine: Engine, call: Call, asked: shared.Renew) -> LockGrant:
    """Extends the time for which the caller holds a named lock."""
    holder = _holder(asked.holder)
    return engine.locks.renew(
        call.session, call.path["lock"], holder, fence=asked.fence, ttl_s=asked.ttl_s
    )


@serves(shared.RELEASE_LOCK)
def release(engine: Engine, call: Call, asked: shared.ReleaseQuery) -> LockRelease:
    """Releases a lock, or leaves its queue."""
    lock = call.path["lock"]
    released = engine.locks.release(call.session, lock, _holder(asked.holder))
    return LockRelease(name=lock, released=released)


@serves(shared.VALUES)
def values(engine: Engine, call: Call, asked: shared.ValuesQuery) -> Page[ValueHead]:
    """Returns one page of the keys of values that the session's tree shares."""
    return engine.shared.values(
        call.session, prefix=asked.prefix, limit=asked.limit, cursor=asked.cursor
    )


@serves(shared.VALUE)
def value(engine: Engine, call: Call, _: NoQuery) -> ValueView:
    """Reads a value that the session's tree shares."""
    return engine.shared.value(call.session, call.path["key"])


@serves(shared.SET_VALUE)
def set_value(engine: Engine, call: Call, asked: shared.SetValue) -> ValueHead:
    """Stores a value that the tree shares; with `if_version` if it is unchanged."""
    return engine.values.set(
        call.session,
        call.path["key"],
        asked.value,
        by=current_visitor(),
        if_version=asked.if_version,
        idempotency_key=call.key,
    )


@serves(shared.DELETE_VALUE)
def delete_value(engine: Engine, call: Call, asked: shared.DeleteValueQuery) -> None:
    """Deletes a shared value; with `if_version` only if it is unchanged."""
    engine.values.delete(
        call.session,
        call.path["key"],
        by=current_visitor(),
        if_version=asked.if_version,
        idempotency_key=call.key,
    )


def _holder(holder: str) -> LockCall:
    return LockCall(by=current_visitor(), caller=current_caller(), holder=holder)
