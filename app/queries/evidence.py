"""Builds the evidence for accepted work from the ledger of its session (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from leadhand.models.counts import Counts
from leadhand.models.reasons import ReasonCode
from leadhand.models.text import list_first
from leadhand.models.views.result import (
    ChangedFiles,
    CheckEvidence,
    Evidence,
    LedgerEntry,
    ResultView,
)

#: Files that a sentence names.
_SHOWN = 5
_WHY_UNKNOWN = {
    "slow": "its folder is too large, or took too long to read",
    "unreadable": "the worker could not read all of its folder",
    "no_git": "git is not installed on the worker",
    "other_host": "the snapshots of its folder are on another host, or were deleted",
}


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
