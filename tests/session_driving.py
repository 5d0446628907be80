"""Moves the sessions of an engine without workers: carries out their steps and writes events."""

from __future__ import annotations

import json
import uuid
from typing import Literal

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action
from app.core.records import Grant
from app.engine import Engine
from app.fleet.inventory import text_of
from leadhand.models.views.step import Event

End = Literal["completed", "failed", "stopped", "aborted"]

#: How long the inventory of a test's worker is believed.
HOUR_MS = 3_600_000


def ref_of(engine: Engine, session: str) -> SessionRef:
    ref = engine.store.ref(session)
    assert ref is not None, session
    return ref


def claim(engine: Engine, session: str, *, worker: str = "w1/1") -> Grant:
    """Claim the session's first ready step."""
    steps = engine.queries.steps(session).items
    address = next(step.address for step in steps if step.state == "ready")
    answer = engine.attempts.claim(
        ref_of(engine, session), address, nonce=uuid.uuid4().hex, worker=worker
    )
    assert answer.word == "granted", answer
    return answer.grants[0]


def settle(
    engine: Engine, session: str, grant: Grant, verdict: str = "accept", value: JsonValue = None
) -> None:
    """Settle an attempt, and the quick steps that the store grants together with the reply.

    The outcomes of checks and judges have the value.
    """
    ref, grants = ref_of(engine, session), [grant]
    while grants:
        held = grants.pop()
        work = engine.attempts.work(ref, held)
        given: dict[str, JsonValue] = {"word": "succeeded", "text": "# done"}
        if work.step.action is not Action.AGENT:
            given = {"word": "succeeded", "verdict": verdict, "value": value}
        reply = engine.attempts.settle(
            work, Outcome.model_validate(given), take=["n" + held.nonce], worker="w1/1"
        )
        grants += reply.grants


def run_iteration(engine: Engine, session: str, verdict: str = "accept") -> None:
    """Carry out the doer, the check and the judge of a loop's current iteration."""
    for _ in range(2):
        settle(engine, session, claim(engine, session), verdict)


def end(engine: Engine, session: str, status: End = "completed") -> None:
    """Bring a loop, none of whose steps runs, to this status."""
    match status:
        case "completed":
            run_iteration(engine, session)
        case "failed":
            grant = claim(engine, session)
            engine.attempts.refuse(ref_of(engine, session), grant, why="it cannot be done")
        case "stopped":
            engine.control.apply(session, "stop")
        case "aborted":
            engine.control.apply(session, "abort")
    assert engine.queries.session(session).status == status


def add_event(
    engine: Engine, session: str, kind: str = "step.settled", *, n: int = 0, event_id: str = "*"
) -> str:
    """Write an event as the store's functions do; returns its id."""
    [written] = _write_events(engine, session, [_fields(kind, n, size=0)], event_id)
    return written


def add_events(engine: Engine, session: str, count: int, *, size: int = 0) -> list[str]:
    """Write events that are numbered from 0, each of about this size; returns their ids."""
    fields = [_fields("step.settled", n, size) for n in range(count)]
    return _write_events(engine, session, fields, "*")


def _fields(kind: str, n: int, size: int) -> dict[str, str]:
    return {"t": kind, "at": str(n), "a": "do" + "x" * size, "d": json.dumps({"n": n})}


def _write_events(
    engine: Engine, session: str, events: list[dict[str, str]], event_id: str
) -> list[str]:
    key = engine.store.keys.part(ref_of(engine, session), "events")
    with engine.store._redis.pipeline(transaction=False) as pipe:
        for fields in events:
            pipe.xadd(key, fields, id=event_id)  # type: ignore[arg-type]
        return [str(written) for written in pipe.execute()]


def all_events(engine: Engine, session: str) -> list[Event]:
    """All events of a session."""
    return engine.queries.events(session, limit=100_000)


def add_worker(engine: Engine, name: str, *, place: str = "local", **more: JsonValue) -> None:
    """Register a worker's inventory."""
    told = {"place": place, **more}
    text = text_of(told, now_ms=engine.store.now_ms(), holds_ms=HOUR_MS)
    engine.store.fleet().publish_inventory(name, text)


def expire_worker(engine: Engine, name: str, *, place: str = "local") -> None:
    """Let a worker's inventory be out of date."""
    text = text_of({"place": place}, now_ms=engine.store.now_ms() - 2, holds_ms=1)
    engine.store.fleet().publish_inventory(name, text)
