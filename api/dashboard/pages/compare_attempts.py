"""Compares two attempts at a step: worker, time, end, prompt, answer, tool calls and output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from api.dashboard.panels.rows import Row
from api.dashboard.render import cost, count, duration, reason
from app.engine import Engine
from leadhand.errors import of_status
from leadhand.models.reasons import Reason
from leadhand.models.views.step import Event, TranscriptEntry

#: Events that end an attempt; a parked one goes on.
_ENDS = frozenset({"released", "settled", "cancelled", "expired", "retried"})
#: Entries per read.
_MANY = 1000
#: Attempts whose output is read.
_OUTPUTS = 50


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


class Tried(NamedTuple):
    """An attempt with what was said in it."""

    attempt: Attempt
    entries: list[TranscriptEntry]
    output: str


class AttemptReads:
    """Reads the attempts at steps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self, session: str, step: str, number: int) -> Tried:
        """Returns an attempt at a step, with transcript and output. Raises Refused without one."""
        found = [one for one in attempts_of(self._events(session), step) if one.number == number]
        if not found:
            raise of_status(404, f"{step[:200]} of session {session} has no such attempt")
        attempt = found[-1]
        entries = [
            one
            for one in self._transcript(session)
            if one.address == step and one.attempt == number
        ]
        return Tried(attempt, entries, self._output(session, step, attempt.fence))

    def _events(self, session: str) -> Iterator[Event]:
        after = "0"
        while found := self._engine.queries.events(session, after=after, limit=_MANY):
            yield from found
            after = found[-1].id

    def _transcript(self, session: str) -> Iterator[TranscriptEntry]:
        cursor: str | None = None
        while True:
            found = self._engine.queries.transcript(session, limit=_MANY, cursor=cursor)
            yield from found.items
            cursor = found.next
            if cursor is None:
                return

    def _output(self, session: str, step: str, fence: int) -> str:
        found = self._engine.outputs.outputs(session, step=step, limit=_OUTPUTS)
        parts = (part.text for one in found if one.fence == fence for part in one.parts)
        return "".join(parts)


def attempt_facts(left: Tried, right: Tried) -> Iterator[Row]:
    """Yields table rows that compare two attempts, without the facts that neither has."""
    for first, second in zip(_facts(left), _facts(right), strict=True):
        if first[1] or second[1]:
            yield Row(first[0], first[1], second[1])


def _facts(tried: Tried) -> Iterator[tuple[str, str]]:
    attempt, entries = tried.attempt, tried.entries
    ended = attempt.ended_ms
    seconds = None if ended is None else (ended - attempt.started_ms) / 1000
    yield "Attempt", str(attempt.number)
    yield "Worker", attempt.worker
    yield "End", attempt.end.replace("_", " ")
    yield "Reason", reason(attempt.reason)
    yield "Time", duration(seconds)
    for label, role in (("Prompt", "user"), ("Answer", "assistant"), ("Notes", "note")):
        yield label, "\n\n".join(one.text for one in entries if one.role == role)
    yield "Verdict", ", ".join(one.verdict for one in entries if one.verdict)
    yield "Tool calls", "\n".join(f"{c.name} {c.input}" for one in entries for c in one.tools)
    yield "Cost", cost(sum(one.cost_usd or 0 for one in entries))
    yield "Tokens in", count(sum(one.input_tokens for one in entries))
    yield "Tokens out", count(sum(one.output_tokens for one in entries))
    yield "Output", tried.output
