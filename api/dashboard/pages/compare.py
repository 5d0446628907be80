"""Compares two sessions, iterations or attempts side by side: facts, costs, verdicts and diffs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple
from urllib.parse import urlencode

from flask import Blueprint, Response, request

from api.dashboard.pages.again import inputs_of
from api.dashboard.patches import FilePatch, files_of
from api.dashboard.render import cost, count, duration, elapsed_s, page, reason
from api.dashboard.timeline import cells_of, seconds_of
from app.engine import Engine
from app.sessions.listing import encode_cursor
from app.sessions.outputs import list_outputs
from leadhand.errors import of_status
from leadhand.models.verdicts import Reason
from leadhand.models.views.result import LedgerEntry
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import Event, TranscriptEntry

#: Events that end an attempt; a parked one goes on.
_ENDS = frozenset({"released", "settled", "cancelled", "expired", "retried"})
#: Entries per read.
_MANY = 1000
#: Attempts whose output is read.
_OUTPUTS = 50
#: Iterations of each session that the page compares.
ITERATIONS = 100
SIDES = ("left", "right")


class Row(NamedTuple):
    """A fact of both sides."""

    label: str
    left: str
    right: str
    #: The page that compares it more closely; empty if there is none.
    url: str = ""

    @property
    def differs(self) -> bool:
        """Whether the two values that the row compares are different."""
        return self.left != self.right


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
        found = list_outputs(self._engine, session, step=step, limit=_OUTPUTS)
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


_FACTS: tuple[tuple[str, Callable[[SessionView], str]], ...] = (
    ("Status", lambda view: view.status),
    ("Reason", lambda view: reason(view.reason)),
    ("Task", lambda view: view.task or view.name),
    ("Doer", lambda view: view.doer or ""),
    ("Checkers", lambda view: ", ".join(view.checkers)),
    ("Note", lambda view: view.note or ""),
    ("Folder", lambda view: view.cwd or ""),
    ("Iterations", lambda view: str(view.counters.iterations)),
    ("Steps", lambda view: str(view.counters.steps)),
    ("Failed attempts", lambda view: str(view.counters.attempts_failed)),
    ("Elapsed", lambda view: duration(elapsed_s(view.created_at, view.ended_at))),
    ("Cost", lambda view: cost(view.counters.cost_usd)),
    ("Tokens in", lambda view: count(view.counters.input_tokens)),
    ("Tokens out", lambda view: count(view.counters.output_tokens)),
)


def facts(left: SessionView, right: SessionView) -> list[Row]:
    """Returns table rows that compare the facts of two sessions, without those that neither has."""
    rows = [Row(label, fact(left), fact(right)) for label, fact in _FACTS]
    return [row for row in rows if row.left or row.right]


def inputs(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Row]:
    """Yields a table row for each input of two sessions, with both values."""
    for name in dict.fromkeys([*left, *right]):
        yield Row(f"Input {name}", left.get(name, ""), right.get(name, ""))


class DiffFile(NamedTuple):
    """One file of a diff that the session has, as the page of its session numbers them."""

    session: str
    number: int
    patch: FilePatch


class Iteration(NamedTuple):
    """One side of the comparison of iterations."""

    #: Its position in the session's ledger, from 1.
    position: int
    entry: LedgerEntry
    files: list[DiffFile]


_ITERATION_FACTS: tuple[tuple[str, Callable[[LedgerEntry], str]], ...] = (
    ("Loop", lambda entry: entry.loop),
    ("Iteration", lambda entry: str(entry.iteration)),
    ("Run", lambda entry: str(entry.run)),
    ("Verdict", lambda entry: entry.verdict.replace("_", " ")),
    ("Reason", lambda entry: reason(entry.reason)),
    ("Doer", lambda entry: entry.doer or ""),
    ("Doer's report", lambda entry: entry.work),
    ("Time", lambda entry: duration(seconds_of(entry))),
    ("Cost", lambda entry: cost(entry.cost_usd or 0)),
    ("Tokens in", lambda entry: count(entry.input_tokens)),
    ("Tokens out", lambda entry: count(entry.output_tokens)),
)


def iteration_facts(left: LedgerEntry, right: LedgerEntry) -> Iterator[Row]:
    """Yields table rows that compare two iterations: facts, verdicts and feedback per checker."""
    for label, fact in _ITERATION_FACTS:
        row = Row(label, fact(left), fact(right))
        if row.left or row.right:
            yield row
    first, second = ({cell.name: cell for cell in cells_of(entry)} for entry in (left, right))
    for name in dict.fromkeys([*first, *second]):
        cells = [side.get(name) for side in (first, second)]
        yield Row(name, *("" if one is None else one.verdict or "not judged" for one in cells))
        feedback = ["" if one is None else one.feedback for one in cells]
        if any(feedback):
            yield Row(f"Feedback of {name}", *feedback)


def iterations(ledgers: list[list[LedgerEntry]], ids: list[str]) -> Iterator[Row]:
    """Yields a table row per iteration number with the verdicts of both sessions' iterations."""
    for number, (first, second) in enumerate(zip_longest(*ledgers), 1):
        url = "" if first is None or second is None else _url(ids, number, number)
        yield Row(f"Iteration {number}", _verdicts(first), _verdicts(second), url)


def _url(ids: list[str], left: int, right: int) -> str:
    first, second = ids
    asked = {"left": first, "right": second, "left_iteration": left, "right_iteration": right}
    return f"/ui/compare?{urlencode(asked)}"


def _verdicts(entry: LedgerEntry | None) -> str:
    if entry is None:
        return ""
    checks = [f"{one.name} {one.verdict or 'not judged'}" for one in cells_of(entry)]
    judged = f" ({', '.join(checks)})" if checks else ""
    return f"{entry.verdict.replace('_', ' ')}{judged}"


def paired(left: list[DiffFile], right: list[DiffFile]) -> list[list[DiffFile | None]]:
    """Pairs the files of two diffs by name; a file that one diff lacks has None there."""
    sides = [{one.patch.name: one for one in side} for side in (left, right)]
    return [[side.get(name) for side in sides] for name in dict.fromkeys([*sides[0], *sides[1]])]


class Compare:
    """Reads what the page shows."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queries = engine.queries
        self._attempts = AttemptReads(engine)

    def show(self) -> Response:
        """GET /ui/compare?left=ID&right=ID: compare two sessions side by side.

        With `left_iteration` and `right_iteration` it compares these, and with `step`,
        `left_attempt` and `right_attempt` two attempts at a step.
        """
        ids = [request.args.get(side, "").strip() for side in SIDES]
        numbers = [request.args.get(f"{side}_iteration", type=int) for side in SIDES]
        if not all(ids):
            return page("compare.html", of="sessions", ids=ids, numbers=numbers, rows=None)
        step = request.args.get("step", "")
        views = [self._queries.session(one) for one in ids]
        values: dict[str, object] = {"ids": ids, "numbers": numbers, "views": views}
        if step:
            values |= {"of": "attempts", "step": step, **self._of_attempts(ids, step)}
        elif numbers != [None, None]:
            # One number applies to both sides.
            left, right = (
                self._iteration(session, number or next(filter(None, numbers)))
                for session, number in zip(ids, numbers, strict=True)
            )
            values["of"] = "iterations"
            values["numbers"] = [left.position, right.position]
            values["rows"] = list(iteration_facts(left.entry, right.entry))
            values["files"] = paired(left.files, right.files)
        else:
            ledgers = [self._queries.ledger(one, limit=ITERATIONS).items for one in ids]
            given = (inputs_of(self._engine, one) for one in ids)
            values["of"] = "sessions"
            values["rows"] = [*facts(*views), *inputs(*given), *iterations(ledgers, ids)]
        return page("compare.html", values)

    def _of_attempts(self, ids: list[str], step: str) -> dict[str, object]:
        numbers = [request.args.get(f"{side}_attempt", 1, type=int) for side in SIDES]
        left, right = (
            self._attempts.find(session, step, number)
            for session, number in zip(ids, numbers, strict=True)
        )
        return {"numbers": numbers, "rows": list(attempt_facts(left, right))}

    def _iteration(self, session: str, position: int) -> Iteration:
        cursor = encode_cursor(max(0, position - 1))
        entries = self._queries.ledger(session, limit=1, cursor=cursor).items
        if position < 1 or not entries:
            raise of_status(404, f"session {session} has no iteration {position}")
        inside = f"{entries[0].address}/"
        files = [
            DiffFile(session, number, patch)
            for number, diff in enumerate(self._queries.diffs(session, limit=200).items)
            if diff.address.startswith(inside)
            for patch in files_of(diff.patch)
        ]
        return Iteration(position, entries[0], files)


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page that compares two sessions, iterations or attempts."""
    routes.add_url_rule("/compare", "compare", Compare(engine).show)
