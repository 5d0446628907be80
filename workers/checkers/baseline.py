"""Runs a checker's command before the first doer of a loop: was it red before the work?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from app.domain.outcomes import Baseline, BaselineWord, Outcome
from app.domain.reasons import ReasonCode
from app.truncate import cut
from leadhand.models.counts import Counts
from leadhand.models.documents import Checker
from workers.agents.output_parser import TEXT_LIMIT
from workers.checkers.commands import CommandRun, listed, run_command
from workers.checkers.reports import TestRun
from workers.folders.work_diff import SNAPSHOTS
from workers.folders.worktree import SnapshotLost, Worktree
from workers.processes.exit_outcome import add_process_facts, failed_outcome, why_not_started
from workers.processes.process import ProcessResult
from workers.task.task import BodyTask

#: The most names of tests that are kept; without the names only the numbers are compared.
_NAMES = 5_000
#: Characters of the output that are stored.
_TEXT = 2_000


#: The first line of a check that accepts, by how it ended before the work.
_FIRST = {
    "green": "It was green before the work, too: it cannot tell whether anything was done.",
    "red": "It was red before the work.",
    "unknown": "",
}


class Found(NamedTuple):
    """A baseline, the text for people, and the process that ended last."""

    base: Baseline
    text: str
    result: ProcessResult | None


def run_baseline(task: BodyTask, find: Callable[[], Found]) -> Outcome:
    """Runs a check before the work; the outcome has no verdict. What changed a folder is named.

    In a worktree or copy of the session's own that is put back.
    """
    folder = task.own_top or task.cwd
    shelf, most = task.spill.parent / SNAPSHOTS, task.copy_max
    tree = None if folder is None else Worktree(folder, shelf, most=most)
    before = tree.snapshot() if tree is not None else None
    found = find()
    if found.result is not None and found.result.cancelled:
        text = "the check before the work was cancelled"
        return failed_outcome(ReasonCode.CANCELLED, text, result=found.result)
    outcome = Outcome(
        word="succeeded",
        text=cut(f"{found.base.word} before the work{found.text}", _TEXT),
        value=found.base.model_dump(mode="json"),
        counts=found.base.counts,
        warning=None if tree is None else _changes(tree, before, own=task.own_top is not None),
    )
    return outcome if found.result is None else add_process_facts(outcome, found.result)


def find_by_command(
    task: BodyTask, checker: Checker, *, timeout_s: float, cancel: threading.Event
) -> Found:
    """Runs a checker's command."""
    ran = run_command(task, checker, timeout_s=timeout_s, cancel=cancel)
    base = baseline_of(ran)
    counts = f": {base.counts.text}" if base.counts is not None else ""
    output = ran.result.stdout.text.strip() or ran.result.stderr.text.strip()
    return Found(base, f"{counts}\n\n{output}".rstrip(), ran.result)


def joined(gates: Mapping[str, Baseline]) -> Baseline:
    """Returns the baseline of a rubric: red if a gate was red."""
    words = {one.word for one in gates.values()} or {"unknown"}
    word: BaselineWord = "red" if "red" in words else "green" if words == {"green"} else "unknown"
    return Baseline(word=word, gates=dict(gates))


def baseline_of(ran: CommandRun) -> Baseline:
    """Returns what a run before the work says about the command."""
    tests = ran.tests
    if ran.result.timed_out or why_not_started(ran.result) is not None:
        return Baseline()
    return Baseline(
        word="green" if ran.result.succeeded and not ran.refusal else "red",
        counts=None if tests is None else tests.counts,
        names=tests.names if tests is not None and len(tests.names) <= _NAMES else (),
        fails_with_tests=_fails_with_tests(ran),
    )


def _fails_with_tests(ran: CommandRun) -> bool | None:
    """Whether the exit code says what the tests say; unknown where no test ran."""
    counts = ran.tests.counts if ran.tests is not None else Counts()
    if not (counts.passed or counts.failed):
        return None
    return bool(counts.failed) is (ran.result.exit_code != 0)


def _changes(tree: Worktree, before: str | None, *, own: bool) -> str | None:
    """Puts back what the command changed in an own folder, and names it; None if nothing."""
    after = tree.snapshot()
    if before is None or after is None or before == after:
        return None
    names = tree.changed_names(before, after)
    end = "which now count as the folder's"
    if own:
        try:
            tree.put_back(before)
            end = "which were put back"
        except SnapshotLost as error:
            end = f"which could not be put back: {error}"
    which = f": {listed(names)}" if names else ""
    return f"the check before the work changed files, {end}{which}"


def compare(base: Baseline | None, outcome: Outcome, tests: TestRun | None) -> Outcome:
    """Returns a check's outcome with its baseline, and a warning if tests are gone since then."""
    if base is None:
        return outcome
    accepts = outcome.verdict == "accept"
    first = _FIRST[base.word] if accepts else ""
    text = "\n\n".join(part for part in (first, outcome.text) if part)
    warnings = [outcome.warning, _gone(base, tests) if accepts else None]
    warning = "\n".join(filter(None, warnings)) or None
    return outcome.model_copy(
        update={"baseline": base.word, "text": cut(text, TEXT_LIMIT), "warning": warning}
    )


def _gone(base: Baseline, tests: TestRun | None) -> str | None:
    """A warning with names if fewer tests were found than before the work."""
    if base.counts is None or tests is None or tests.counts.collected >= base.counts.collected:
        return None
    fewer = base.counts.collected - tests.counts.collected
    gone: Sequence[str] = sorted({*base.names} - {*tests.names}) if tests.names else ()
    which = f": {listed(gone)}" if gone else ""
    return f"{fewer} of {base.counts.collected} tests are gone since before the work{which}"
