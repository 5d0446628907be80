"""Sets quarantined tests aside, and runs a red command again: is a test flaky, or does it fail?"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from functools import partial

from app.core.outcomes import CheckRun, Outcome
from app.truncate import cut
from leadhand.models.documents import Quarantined
from workers.agents.output_parser import TEXT_LIMIT
from workers.checkers.baseline import KeptBases, baseline_of, compare
from workers.checkers.commands import CommandRun, listed, run_command
from workers.checkers.verdicts import command_verdict
from workers.folders.private_repository import by_products_of
from workers.folders.snapshots import Worktree
from workers.folders.work_diff import SNAPSHOTS
from workers.prompts import CheckInputs
from workers.task import BodyTask

_PATH = re.compile(r"\.py(?=::|$)")
#: The most names of failed tests that are stored for a run.
_NAMES = 50


def without_quarantined(
    entries: Sequence[Quarantined], ran: CommandRun, outcome: Outcome, *, today: date
) -> Outcome:
    """Accepts a red run of which only quarantined tests failed; else says what has no effect.

    It must be known that nothing else is red: the command is one test runner, its exit code is
    that of failed tests, and all failures are named.
    """
    if not entries or outcome.verdict != "retry" or outcome.decided_by != "exit_code":
        return outcome
    if ran.tests is None or len(ran.tests.failed) < ran.tests.counts.failed:
        why = "the tests that failed are not known"
        return with_note(outcome, f"The quarantine has no effect: {why}.")
    held = {name: entry for name in ran.tests.failed if (entry := _entry(entries, name))}
    expired = [entry for entry in held.values() if entry.until < today]
    note = " ".join(
        f"The quarantine of {entry.test} ({entry.owner}) ended on {entry.until}."
        for entry in dict.fromkeys(expired)
    )
    left = [name for name in ran.tests.failed if name not in held or held[name].until < today]
    if left or not held:
        return with_note(outcome, note)
    if not ran.only_tests_failed:
        why = "other programs of the command may have failed, too; write it as one test runner"
        return with_note(outcome, f"The quarantine has no effect: {why}.")
    listed = "; ".join(_described(name, entry) for name, entry in held.items())
    text = f"Only quarantined tests failed: {listed}."
    return outcome.model_copy(
        update={
            "verdict": "accept",
            "decided_by": "quarantine",
            "text": cut(f"{text}\n\n{outcome.text}", TEXT_LIMIT),
            "quarantined": tuple(held),
            "warning": cut(text, 1_000),
        }
    )


def with_note(outcome: Outcome, note: str) -> Outcome:
    """Returns the outcome with a note before its text, if there is one."""
    if not note:
        return outcome
    text = f"{note}\n\n{outcome.text}".rstrip()
    return outcome.model_copy(update={"text": cut(text, TEXT_LIMIT)})


def _described(name: str, entry: Quarantined) -> str:
    return f"{name} ({entry.owner}, until {entry.until})"


def _entry(entries: Iterable[Quarantined], name: str) -> Quarantined | None:
    """The entry of a test that lasts longest; one without parameters is of all of them."""
    names = {_plain(name), _plain(name).partition("[")[0]}
    found = [entry for entry in entries if _plain(entry.test) in names]
    return max(found, key=lambda entry: entry.until, default=None)


def _plain(name: str) -> str:
    """The name of a test as pytest and JUnit reports write it.

    >>> _plain("tests/test_a.py::TestX::test_y[a/b]"), _plain("tests.test_a.TestX::test_y[a/b]")
    ('tests.test_a.TestX.test_y[a/b]', 'tests.test_a.TestX.test_y[a/b]')
    """
    head, bracket, parameters = name.partition("[")
    return _PATH.sub("", head).replace("/", ".").replace("::", ".") + bracket + parameters


def run_until_sure(
    task: BodyTask, given: CheckInputs, *, timeout_s: float, cancel: threading.Event
) -> Outcome:
    """Runs a checker's command; after a red run also its `reruns`, all of them.

    All red is the first run's verdict. Red and green is flaky: the check abstains. A run that
    changes the folder is the last one, since the next would not judge the same work.
    """
    same = _SameFolder(task, given)
    run = partial(
        run_command, task, given.checker, timeout_s=timeout_s, cancel=cancel, base=given.base
    )
    today = datetime.now(UTC).date()
    ran, verdicts = list[CommandRun](), list[Outcome]()
    for number in range(1 + given.checker.reruns):
        again = task.spill / f"rerun-{number}" if number else None
        ran.append(run(spill=again))
        if number == 0 and given.keeps:
            KeptBases(task, task.recorded_work()).put(given.checker, baseline_of(ran[0]))
        verdict = command_verdict(ran[-1], timeout_s=timeout_s)
        verdict = without_quarantined(given.quarantine, ran[-1], verdict, today=today)
        verdicts.append(compare(given.base, verdict, ran[-1].tests))
        is_red = verdict.decided_by in ("exit_code", "tests") and verdict.verdict != "accept"
        if ran[-1].result.cancelled or (number == 0 and not is_red):
            return verdicts[-1]
        if number < given.checker.reruns and same.changes():
            break
    if len(ran) == 1:
        return with_note(verdicts[0], same.note)
    return _verdict(ran, verdicts, same.note)


class _SameFolder:
    """The folder of a command that may run again, compared between its runs.

    Its snapshots are the attempt's own, since other checks run at the same time. The judge names
    what has changed, and puts it back in a worktree of the session's own.
    """

    def __init__(self, task: BodyTask, given: CheckInputs) -> None:
        folder = (task.own_top or task.cwd) if given.checker.reruns else None
        shelf, most = task.spill / "state", task.copy_max
        tree = partial(Worktree, shelf=shelf, most=most)
        named = None if folder is None else by_products_of(task.home / SNAPSHOTS, folder)
        self._tree = None if folder is None else tree(folder, leave_out=named)
        self._before = None if self._tree is None else self._tree.snapshot()
        #: Why it did not run again; '' if it did.
        self.note = ""

    def changes(self) -> bool:
        """Whether the folder has changed since before the first run."""
        after = None if self._tree is None else self._tree.snapshot()
        if self._tree is None or None in (after, self._before) or after == self._before:
            return False
        names = self._tree.changed_names(self._before, after)
        which = f": {listed(names)}" if names else ""
        self.note = f"It did not run again, as the folder had changed meanwhile{which}."
        return True


def _verdict(ran: Sequence[CommandRun], verdicts: Sequence[Outcome], note: str) -> Outcome:
    first = with_note(verdicts[0], note)
    runs = tuple(_kept(*each) for each in zip(ran, verdicts, strict=True))
    changes: dict[str, object] = {"runs": runs, "ended_ms": verdicts[-1].ended_ms}
    if any(run.verdict == "accept" for run in runs):
        greens = sum(run.verdict == "accept" for run in runs)
        flips = flipping(ran)
        which = f": {listed(flips)} did not end the same way" if flips else ""
        text = f"Flaky: {greens} of {len(runs)} runs on the same work passed{which}."
        # That of a green run says which tests are gone since before the work.
        warnings = dict.fromkeys(one.warning for one in verdicts if one.warning)
        changes |= {
            "warning": "\n".join(warnings) or None,
            "text": cut(f"{text}\n\n{first.text}", TEXT_LIMIT),
            "decided_by": "flaky",
            "flaky": flips,
        }
    return first.model_copy(update=changes)


def _kept(ran: CommandRun, verdict: Outcome) -> CheckRun:
    decided = verdict.decided_by in ("exit_code", "tests", "quarantine")
    return CheckRun(
        verdict=verdict.verdict if decided else None,
        exit_code=verdict.exit_code,
        counts=verdict.counts,
        failed=ran.tests.failed[:_NAMES] if ran.tests is not None else (),
        started_ms=verdict.started_ms,
        ended_ms=verdict.ended_ms,
    )


def flipping(ran: Sequence[CommandRun]) -> tuple[str, ...]:
    """Returns the tests that failed in some of the runs whose tests are known, and not in all."""
    failed = [frozenset(run.tests.failed) for run in ran if run.tests is not None]
    if not failed:
        return ()
    return tuple(sorted(frozenset.union(*failed) - frozenset.intersection(*failed)))
