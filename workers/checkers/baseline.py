"""Runs a checker's command before the first doer of a loop: was it red before the work?"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from app.core.outcomes import Baseline, BaselineWord, Outcome
from app.truncate import cut
from leadhand.models.documents import Checker
from leadhand.models.verdicts import Counts, ReasonCode
from workers.agents.output_parser import TEXT_LIMIT
from workers.checkers.clean_folder import snapshots_of
from workers.checkers.commands import CommandRun, listed, run_command
from workers.checkers.reports import TestRun
from workers.folders.git_state import GitState
from workers.folders.snapshots import SnapshotLost, Worktree
from workers.folders.work_diff import SNAPSHOTS
from workers.processes.environment import place
from workers.processes.exit_outcome import add_process_facts, failed_outcome, why_not_started
from workers.processes.orphans import close_here, open_here
from workers.processes.process import ProcessResult
from workers.processes.user_folders import claim_session_folder
from workers.task import BodyTask

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
    #: The beginning of what the command wrote.
    output: str | None = None


def run_baseline(task: BodyTask, find: Callable[[str | None], Found]) -> Outcome:
    """Runs a check before the work; the outcome has no verdict. What changed a folder is named.

    In a worktree or copy of the session's own that is put back. `find` gets the digest of the
    folder.
    """
    folder = _Folder(task)
    with folder.shared():
        found = find(folder.before)
    if found.result is not None and found.result.cancelled:
        text = "the check before the work was cancelled"
        return failed_outcome(ReasonCode.CANCELLED, text, result=found.result)
    outcome = Outcome(
        word="succeeded",
        text=cut(f"{found.base.word} before the work{found.text}", _TEXT),
        value=found.base.model_dump(mode="json"),
        raw=found.output,
        counts=found.base.counts,
        warning=folder.warning,
        digest=folder.left,
    )
    return outcome if found.result is None else add_process_facts(outcome, found.result)


class _Folder:
    """The folder of the checks that run before the work at the same time, on this host.

    The first one takes the snapshot, and the last one compares the folder with it: a check must
    not be disturbed by what is put back after another. Each holds a shared file lock, which ends
    with its process.
    """

    def __init__(self, task: BodyTask) -> None:
        self._task = task
        self._shelf = task.home / SNAPSHOTS
        self._marker = self._shelf / "before"
        #: Names the step in the marker, which all sessions in the folder share.
        self._at = f"{task.session}:{task.address}"
        folder, own = task.own_top or task.cwd, task.own_top is not None
        #: Whether what changes is put back: nothing that others write at the same time is lost.
        self._puts_back = own and not task.is_beside
        self._tree = None if folder is None else snapshots_of(task, folder, is_own=own)
        #: The folder's digest before the first one; None if it is unknown.
        self.before: str | None = None
        self.warning: str | None = None
        #: The digest of a user's folder, if it has changed: no doer has done that.
        self.left: str | None = None

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Keep the folder from being put back during a `with` block, and compare it after."""
        if self._tree is None:
            yield
            return
        claim_session_folder(self._shelf)
        running, entry = (open_here(self._shelf / name) for name in ("running", "entry"))
        try:
            with _locked(entry):
                self.before = self._begin(is_first=_take_alone(running))
                fcntl.flock(running, fcntl.LOCK_SH)
            yield
            with _locked(entry):
                if _take_alone(running):
                    self.warning = self._compare(self._tree)
                    self._marker.unlink(missing_ok=True)
        finally:
            close_here(running)
            close_here(entry)

    def _begin(self, *, is_first: bool) -> str | None:
        """The folder's digest before the first of them, also of an attempt that was killed."""
        assert self._tree is not None
        digest, _, others = self._read_marker().partition(" ")
        again = self._at in others.split() and not self._task.after_stop
        if not is_first:
            before = digest or None
        elif again and self._tree.knows(digest):
            before = digest
            if self._puts_back:
                with suppress(SnapshotLost):
                    self._tree.put_back(digest)
        else:
            before, others = self._tree.snapshot(), ""
            if self._puts_back:
                GitState(self._tree).record()
        self._marker.write_text(f"{before or ''} {others} {self._at}")
        return before

    def _compare(self, tree: Worktree) -> str | None:
        """Put back what has changed in an own folder, and name it; None if nothing."""
        moved = self._put_git_back(tree)
        after = tree.snapshot()
        if self.before is None or after is None or self.before == after:
            return moved
        names = tree.changed_names(self.before, after)
        end = "and were put back"
        if not self._puts_back:
            self.left, end = after, "and now count as the folder's"
        else:
            try:
                tree.put_back(self.before)
            except SnapshotLost as error:
                end = f"and could not be put back: {error}"
        which = f": {listed(names)}" if names else ""
        files = f"files changed while checks ran before the work, {end}{which}"
        return f"{files}; {moved}" if moved else files

    def _put_git_back(self, tree: Worktree) -> str | None:
        """Put HEAD, its branch and the index of an own worktree back, and name what changed."""
        state = GitState(tree)
        moved = state.changes() if self._puts_back else []
        if not moved:
            return None
        with suppress(OSError, subprocess.SubprocessError):
            state.put_back()
        return f"checks before the work changed {', '.join(moved)} of the worktree"

    def _read_marker(self) -> str:
        try:
            return self._marker.read_text()
        except OSError:
            return ""


@contextmanager
def _locked(file: int) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _take_alone(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_by_command(
    task: BodyTask,
    checker: Checker,
    digest: str | None,
    *,
    timeout_s: float,
    cancel: threading.Event,
) -> Found:
    """Runs a checker's command, unless it ran in the same state."""
    kept = KeptBases(task, digest)
    found = kept.get(checker)
    if found is not None:
        counts = f": {found.counts.text}" if found.counts is not None else ""
        return Found(found, f"{counts}, as it ran in this state already", None)
    ran = run_command(task, checker, timeout_s=timeout_s, cancel=cancel)
    base = baseline_of(ran)
    kept.put(checker, base)
    counts = f": {base.counts.text}" if base.counts is not None else ""
    output = ran.result.stdout.text.strip() or ran.result.stderr.text.strip()
    return Found(base, counts, ran.result, cut(output, _TEXT) or None)


class KeptBases:
    """How commands ended in one state of the folder, so that none runs there again.

    They are of one session on one host: what git ignores, such as installed packages, is in no
    digest, and may differ elsewhere and later.
    """

    def __init__(self, task: BodyTask, digest: str | None) -> None:
        self._task = task
        self._digest = digest
        self._folder = task.spill.parent / "bases"

    def get(self, checker: Checker) -> Baseline | None:
        """Return how a checker's command ended in this state; None if that is not known."""
        if self._digest is None:
            return None
        try:
            return Baseline.model_validate_json(self._file(checker).read_bytes())
        except (OSError, ValueError):
            return None

    def put(self, checker: Checker, base: Baseline) -> None:
        """Keep how a command ended."""
        if self._digest is None or base.word == "unknown":
            return
        claim_session_folder(self._folder)
        file = self._file(checker)
        new = file.with_name(f"{file.name}.{self._task.spill.name}")
        with suppress(OSError):  # on a full disk it runs again
            new.write_text(base.model_dump_json())
            new.replace(file)

    def _file(self, checker: Checker) -> Path:
        environment = {**self._task.inherit(()), **place(self._task.worker_environment)}
        how = (checker.command, checker.report, checker.allow_empty, checker.clean)
        facts = [self._digest, *how, environment]
        return self._folder / hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


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


def compare(base: Baseline | None, outcome: Outcome, tests: TestRun | None) -> Outcome:
    """Returns a check's outcome with its baseline, and a warning if tests are gone since then."""
    if base is None:
        return outcome
    accepts = outcome.verdict == "accept"
    first = _FIRST[base.word] if accepts else ""
    text = "\n\n".join(part for part in (first, outcome.text) if part)
    warnings = [outcome.warning, missing_tests(base, tests) if accepts else None]
    warning = "\n".join(filter(None, warnings)) or None
    return outcome.model_copy(
        update={"baseline": base.word, "text": cut(text, TEXT_LIMIT), "warning": warning}
    )


def missing_tests(base: Baseline | None, tests: TestRun | None) -> str | None:
    """Return a warning with names if fewer tests were found than before the work."""
    counts = None if base is None else base.counts
    if base is None or counts is None or tests is None:
        return None
    if tests.counts.collected >= counts.collected:
        return None
    fewer = counts.collected - tests.counts.collected
    gone: Sequence[str] = sorted({*base.names} - {*tests.names}) if tests.names else ()
    which = f": {listed(gone)}" if gone else ""
    return f"{fewer} of {counts.collected} tests are gone since before the work{which}"
