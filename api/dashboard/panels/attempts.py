"""Finds the attempts at a step, and how each ended, in the events of its session (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leadhand.models.views import Event, Reason

#: Events that end an attempt; a parked one goes on.
_ENDS = frozenset({"released", "settled", "cancelled", "expired", "retried"})


class Attempt(NamedTuple):
    """An attempt at a step."""

    #: From 1; the claim after a retry has the next number.
    number: int
    #: Grows with each claim; live output names it.
    fence: int
    worker: str
    started_ms: int
    ended_ms: int | None = None
    #: `running`, `lost`, `timeout`, `failed`, `succeeded`, or the word of the event that ended it.
    end: str = "running"
    reason: Reason | None = None


def attempts_of(events: Iterable[Event], address: str) -> list[Attempt]:
    """Returns the attempts at one step, in order, as the events of its session describe them."""
    found: list[Attempt] = []
    for event in events:
        if event.address != address:
            continue
        word = event.type.removeprefix("step.")
        if word == "claimed":
            found.append(_begun(event))
        elif word in _ENDS and found and found[-1].ended_ms is None:
            found[-1] = _ended(found[-1], event, word)
    return found


def _begun(event: Event) -> Attempt:
    fields = event.fields
    return Attempt(
        number=_number(fields.get("attempt")),
        fence=_number(fields.get("fence")),
        worker=str(fields.get("worker") or ""),
        started_ms=event.at_ms,
    )


def _ended(attempt: Attempt, event: Event, word: str) -> Attempt:
    fields = event.fields
    given = fields.get("reason")
    detail = "failed" if word == "retried" else fields.get("word") or fields.get("why")
    return attempt._replace(
        ended_ms=event.at_ms,
        end=str(detail or word),
        reason=Reason.model_validate(given) if isinstance(given, dict) else None,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
