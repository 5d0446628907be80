"""The evidence for accepted work, the diffs of the doers' work, and receipts of stops."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from app.context import Context
from app.core.addresses import SessionRef, by_number, iso, iteration_of
from app.core.program import Action, Program
from app.core.states import ENDED
from app.sessions.listing import encode_cursor, number_of
from app.sessions.presenters import diff_view
from app.store.store import Store
from leadhand.errors import SessionUnknown
from leadhand.models.text import list_first
from leadhand.models.verdicts import Counts, ReasonCode
from leadhand.models.views.explain import Met, ReceiptView
from leadhand.models.views.result import (
    ChangedFiles,
    CheckEvidence,
    Evidence,
    LedgerEntry,
    ResultView,
)
from leadhand.models.views.step import DiffsPage, Event, NoDiffs, NoDiffsWhy

#: Files that a sentence names.
_SHOWN = 5
_WHY_UNKNOWN = {
    "slow": "its folder is too large, or took too long to read",
    "unreadable": "the worker could not read all of its folder",
    "no_git": "git is not installed on the worker",
    "other_host": "the snapshots of its folder are on another host, or were deleted",
}
#: Maximum number of outcomes that are read for the reason, newest first: as many as diffs are kept.
_READ = 200
#: Outcomes that are read at once: each may have 64 kB of text.
_BATCH = 50
#: Of several reasons, the first one of these is given: the others explain less.
_ORDER: tuple[NoDiffsWhy, ...] = (
    "replaced", "slow", "unreadable", "no_git", "not_compared", "unchanged",
)  # fmt: skip
_VERBS = {"stopping": "stop", "exiting": "exit", "aborting": "abort"}
#: The events that end an attempt.
_ENDS = ("released", "settled", "cancelled", "expired", "retried", "parked")


def evidence_of(result: ResultView) -> Evidence | None:
    """Returns on what the acceptance of a session's work is based; None if nothing judged it."""
    last = {entry.loop: entry for entry in result.history}
    accepted = [entry for entry in last.values() if entry.verdict == "accept" and entry.checks]
    if result.verdict != "accept" or not accepted:
        return None
    files = _files(accepted)
    found = Evidence(
        files=files,
        checks=[one for entry in accepted for one in _checks(entry)],
        tests_changed=sorted({one for entry in accepted for one in entry.tests_changed}),
        checker_changed=sorted({one for entry in accepted for one in entry.checker_changed}),
        baseline=_words(accepted, "baseline"),
        flaky=list(_words(accepted, "flaky")),
        stale=_stale(result.history, accepted),
        not_compared=_why_not_compared(accepted, files),
        left_out=sorted({one for entry in accepted for one in entry.left_out}),
        cost_usd=result.cost_usd,
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens,
    )
    return found.model_copy(update={"notes": [*_notes(found, accepted)]})


def _files(entries: Sequence[LedgerEntry]) -> ChangedFiles | None:
    """All files that the loops have changed; None if that is unknown of one of them."""
    changes = [entry.changed for entry in entries]
    names: dict[str, None] = {}
    most = 0
    for one in changes:
        if one is None:
            return None
        names |= dict.fromkeys(one.files)
        most = max(most, one.count)
    return ChangedFiles(files=sorted(names), count=max(most, len(names)))


def _checks(entry: LedgerEntry) -> Iterator[CheckEvidence]:
    for check in entry.checks:
        counts = check.get("counts")
        yield CheckEvidence(
            name=str(check.get("name")),
            loop=entry.loop,
            verdict=_text(check.get("verdict")),
            counts=Counts.model_validate(counts) if isinstance(counts, dict) else None,
            digest=entry.digest,
            baseline=_text(check.get("baseline")),
            ran=_text(check.get("ran")),
        )


def _of_checks(entries: Sequence[LedgerEntry], field: str) -> Iterator[tuple[str, object]]:
    """What the checks have in a field, by the check's name; without those that have nothing."""
    named = Counter(str(check.get("name")) for entry in entries for check in entry.checks)
    for entry in entries:
        for check in entry.checks:
            name = str(check.get("name"))
            if check.get(field) is not None:
                yield (name if named[name] == 1 else f"{entry.loop}: {name}"), check[field]


def _words(entries: Sequence[LedgerEntry], field: str) -> dict[str, str]:
    return {name: str(found) for name, found in _of_checks(entries, field)}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _stale(history: Sequence[LedgerEntry], accepted: Sequence[LedgerEntry]) -> ChangedFiles | None:
    """What changed while checks ran whose verdict does not count, in the accepted runs."""
    runs = {(entry.loop, entry.run) for entry in accepted}
    stale = [one for one in history if one.stale is not None and (one.loop, one.run) in runs]
    found = [one.changed_by_checkers for one in stale if one.changed_by_checkers is not None]
    if not found:
        return None
    names = sorted({name for one in found for name in one.files})
    return ChangedFiles(files=names, count=max(len(names), *(one.count for one in found)))


def _why_not_compared(entries: Sequence[LedgerEntry], files: ChangedFiles | None) -> str | None:
    """Why the folder was not compared after a doer or after the checkers."""
    after_doer = (entry.no_diff for entry in entries if files is None)
    words = (*after_doer, *(entry.not_compared for entry in entries))
    return next((word for word in words if word is not None), None)


def _notes(found: Evidence, entries: Sequence[LedgerEntry]) -> Iterator[str]:
    """What a person should know of it, the most important first."""
    if found.files is not None and not found.files.count:
        yield "accepted, but nothing was changed"
    for entry in entries:
        if entry.decided_by == ReasonCode.USER_SKIP:
            who = "; ".join(f"{one.get('name')} was {one.get('feedback')}" for one in entry.checks)
            yield f"accepted without a check: {who}"
    yield from _notes_on_checks(found)
    for name, tests in _of_checks(entries, "quarantined"):
        if isinstance(tests, (list, tuple)) and tests:
            names = list_first([str(one) for one in tests], _SHOWN)
            yield f"{name} failed in quarantined tests only: {names}"
    yield from _notes_on_files(found)


def _notes_on_checks(found: Evidence) -> Iterator[str]:
    for name, word in found.baseline.items():
        if word == "green":
            yield f"{name} was green before, so it cannot tell whether anything was done"
    if found.flaky:
        yield f"flaky, so not counted: {list_first(found.flaky, _SHOWN)}"


def _notes_on_files(found: Evidence) -> Iterator[str]:
    if found.tests_changed:
        yield f"the doer changed tests: {list_first(found.tests_changed, _SHOWN)}"
    if found.checker_changed:
        names = list_first(found.checker_changed, _SHOWN)
        yield f"the doer changed what configures checks: {names}"
    if found.stale is not None:
        names = list_first(found.stale.files, _SHOWN, of=found.stale.count)
        yield f"the folder changed while checks ran, so they ran again: {names}"
    if found.not_compared is not None:
        why = _WHY_UNKNOWN.get(found.not_compared, found.not_compared)
        yield f"what was changed is not known: {why}"


def diffs_page(
    store: Store,
    ref: SessionRef,
    fields: Mapping[str, str],
    program: Program | None,
    *,
    iteration: int | None,
    limit: int,
    cursor: str | None,
) -> DiffsPage:
    """Returns a page of a session's agent diffs, of one iteration or all; if none, why."""
    start = number_of(cursor)
    meant = _of_iteration(store.names(ref, "diffs"), iteration)
    shown = meant[start : start + limit]
    kept = store.values(ref, "diffs", shown)
    if meant:
        items = [diff_view(address, text) for address, text in kept.items()]
        more = encode_cursor(start + limit) if len(meant) > start + limit else None
        return DiffsPage(items=items, next=more)
    folder = fields.get("cwd") or None
    why = _why_none(store, ref, program, iteration) if folder else "no_folder"
    return DiffsPage(items=[], none=NoDiffs(why=why, folder=folder))


def _of_iteration(addresses: Sequence[str], iteration: int | None) -> list[str]:
    known = sorted(filter(None, addresses), key=by_number)
    return [a for a in known if iteration is None or iteration_of(a) == iteration]


def _why_none(
    store: Store, ref: SessionRef, program: Program | None, iteration: int | None
) -> NoDiffsWhy:
    doers = [
        address
        for address in _of_iteration(store.names(ref, "out"), iteration)
        if program is not None
        and (step := program.step_or_none(address)) is not None
        and step.action is Action.AGENT
    ][-_READ:]
    found: set[NoDiffsWhy] = set()
    for start in range(0, len(doers), _BATCH):
        texts = store.values(ref, "out", doers[start : start + _BATCH]).values()
        found |= {_why_of(json.loads(text)) for text in texts}
    return next((why for why in _ORDER if why in found), "not_ended")


def _why_of(outcome: Mapping[str, object]) -> NoDiffsWhy:
    """Why the diffs have none of this outcome's."""
    if outcome.get("diff"):
        return "replaced"
    given = outcome.get("no_diff")
    if given in _ORDER:
        return _ORDER[_ORDER.index(given)]
    return "not_compared"


def read_receipt(engine: Context, session: str) -> ReceiptView:
    """Returns a session's last stop, exit or abort, and the attempts it ended in the tree."""
    ref = engine.registry.ref(session)
    status = engine.store.values(ref, "session", ["status"]).get("status")
    if status is None:
        raise SessionUnknown(session)
    control = _last_control(engine.store.all_events(ref), since_ms=0)
    if control is None:
        return ReceiptView(session=session, status=status)
    return ReceiptView(
        session=session,
        status=status,
        control=_VERBS[str(control.fields["status"])],
        asked_at=iso(control.at_ms),
        done=status in ENDED,
        items=[
            one
            for below in _tree(engine, ref)
            for one in affected_attempts(
                below.id, engine.store.all_events(below), since_ms=control.at_ms
            )
        ],
    )


def _tree(engine: Context, ref: SessionRef) -> Iterator[SessionRef]:
    yield ref
    for child in sorted(engine.store.children(ref)):
        yield from _tree(engine, SessionRef(child, ref.root))


def affected_attempts(session: str, events: Sequence[Event], *, since_ms: int) -> Iterator[Met]:
    """Yields, from a session's events, the attempts that a stop met, and how each ended."""
    control = _last_control(events, since_ms=since_ms)
    at = next((n for n, e in enumerate(events) if e is control or e.at_ms > since_ms), len(events))
    running: dict[str, str] = {}
    for event in events[:at]:
        if event.type == "step.claimed":
            running[str(event.address)] = str(event.fields.get("worker", ""))
        elif _end_of_attempt(event):
            running.pop(str(event.address), None)
    for event in events[at:]:
        if _end_of_attempt(event) and event.address in running:
            yield Met(
                session=session,
                address=event.address,
                worker=running.pop(event.address),
                became=_end_of_attempt(event),
                at=iso(event.at_ms),
            )
    for address, worker in running.items():
        yield Met(session=session, address=address, worker=worker, became="running")


def _end_of_attempt(event: Event) -> str:
    """The end of an attempt according to an event; empty for other events."""
    word = event.type.removeprefix("step.")
    return word if word in _ENDS else ""


def _last_control(events: Sequence[Event], *, since_ms: int) -> Event | None:
    """The last stop, exit or abort event."""
    for event in reversed(events):
        controls = event.type == "session.status" and event.fields.get("status") in _VERBS
        if controls and event.at_ms >= since_ms:
            return event
    return None
