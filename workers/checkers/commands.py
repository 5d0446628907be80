"""Runs the commands of checkers and gates, and reads which tests they ran."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import NamedTuple

from app.core.outcomes import Baseline
from leadhand.models.documents import Checker
from leadhand.models.text import list_first
from workers.checkers.reports import (
    ReportUnreadable,
    RunnerCommand,
    TestRun,
    joined,
    read_command,
    read_junit,
    read_output,
)
from workers.processes.output import SPILL_BYTES
from workers.processes.process import REPORT_BYTES, ProcessResult, run
from workers.task import BodyTask

#: The value of a checker's `report` with which no report is asked for or read.
NO_REPORT = "none"
#: Names of failed tests that a text lists.
_NAMES = 10

#: What pytest writes if it leaves tests out after a failure.
_STOPPED = re.compile(r"^!+ (stopping after|Interrupted|_pytest\.outcomes\.Exit)", re.MULTILINE)

#: A file's inode, times and size; None where there is none.
_Stamp = tuple[int, int, int] | None


class CommandRun(NamedTuple):
    """One run of a command that checks."""

    result: ProcessResult
    #: The tests that it ran; None if they are not known.
    tests: TestRun | None
    #: Why its exit code 0 does not accept; '' if it does.
    refusal: str
    #: Whether it is one test runner that ended as it does if tests failed, and nothing else.
    only_tests_failed: bool = False


def run_command(
    task: BodyTask,
    checker: Checker,
    *,
    timeout_s: float,
    cancel: threading.Event,
    spill: Path | None = None,
    base: Baseline | None = None,
) -> CommandRun:
    """Runs a checker's command, with a report of each pytest that it starts.

    `spill` is the folder for the output of a run that is not the attempt's first. `base` is how
    the command ended before the work.
    """
    line, spill = checker.command or "", spill or task.spill
    words = read_command(line)
    expected = _expected(checker, words, base)
    is_read = checker.report != NO_REPORT and not words.lists_only
    pipe = spill / "report.xml" if is_read else None
    command = replace(task.command(line, timeout_s=timeout_s, report=pipe), spill=spill)
    if pipe is None:
        return CommandRun(run(command, cancel), None, "")
    files = words.reports if checker.report is None else (checker.report,)
    before = _stamps(task.folder, files)
    result = run(command, cancel)
    try:
        tests = joined([read_junit(_bounded(result.report)), *_read(task.folder, files, before)])
        why = "there is none"
    except ReportUnreadable as error:
        tests, why = None, f"it cannot be read: {error}"
    if tests is None and expected.report is None:
        tests = read_output(result.stdout.whole(SPILL_BYTES))
    refusal = _refusal(checker, expected, tests, why) if result.succeeded else ""
    result = _without_report_line(result, pipe)
    return CommandRun(result, tests, refusal, _only_tests_failed(words, result))


def _only_tests_failed(words: RunnerCommand, result: ProcessResult) -> bool:
    if words.failed_code is None or result.exit_code != words.failed_code:
        return False
    return _STOPPED.search(result.stdout.whole(SPILL_BYTES)) is None


class _Expected(NamedTuple):
    """What a command that accepts must bring."""

    #: The report that must come, and nothing else in its place; None if none must.
    report: str | None
    #: Whether some tests must be reported, in any form.
    tests: bool
    #: Whether a failed test fails the command.
    fails_with_tests: bool


def _expected(checker: Checker, words: RunnerCommand, base: Baseline | None) -> _Expected:
    report = checker.report
    if report is None and words.runs_pytest:
        report = "pytest's report"
    elif report is None and base is not None and base.names:
        report = "the report of its tests"
    fails = checker.report is not None or words.fails_with_tests
    if base is not None and base.fails_with_tests is not None:
        fails = base.fails_with_tests
    return _Expected(report, report is not None or bool(base and base.counts), fails)


def _refusal(checker: Checker, expected: _Expected, tests: TestRun | None, why: str) -> str:
    """Why exit code 0 does not accept; '' if it does."""
    first = "The command exited with 0, but"
    if tests is None:
        if checker.allow_empty or not expected.tests:
            return ""
        what = expected.report or "the output of its tests"
        return (
            f"{first} {what} is missing ({why}): the tests did not run to their end."
            " With `report: none` the checker's exit code alone decides."
        )
    counts = tests.counts
    if counts.failed and expected.fails_with_tests:
        return (
            f"{first} {counts.failed} of {counts.collected} tests failed: {listed(tests.failed)}."
            " With `report: none` the checker's exit code alone decides."
        )
    if counts.passed or counts.failed or checker.allow_empty:
        return ""
    return f"{first} no test ran: {counts.text}. With `allow_empty: true` the checker accepts this."


def listed(names: Sequence[str]) -> str:
    """Lists the first names of tests."""
    return list_first(names, _NAMES)


def _stamps(folder: Path, files: Sequence[str]) -> dict[Path, _Stamp]:
    return {path: _stamp(path) for name in files for path in _found(folder, name)}


def _found(folder: Path, name: str) -> list[Path]:
    """The file of this name, or the files of a pattern such as `reports/TEST-*.xml`."""
    if "*" not in name:
        return [folder / name]
    found = glob(name, root_dir=folder, recursive=True)  # noqa: PTH207 - it may be absolute
    return [folder / one for one in sorted(found)]


def _stamp(path: Path) -> _Stamp:
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_ctime_ns, found.st_size
    return None


def _read(
    folder: Path, files: Sequence[str], before: Mapping[Path, _Stamp]
) -> list[TestRun | None]:
    """Reads the reports that were written since; one of an earlier run counts for nothing."""
    paths = [path for name in files for path in _found(folder, name)]
    fresh = [path for path in paths if _stamp(path) not in (None, before.get(path))]
    return [read_junit(_contents(path)) for path in fresh]


def _contents(path: Path) -> bytes:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise ReportUnreadable(f"{path.name} is no file")
            return _bounded(file.read(REPORT_BYTES + 1))
    except OSError as error:
        raise ReportUnreadable(error.strerror or str(error)) from error


def _bounded(data: bytes) -> bytes:
    if len(data) > REPORT_BYTES:
        raise ReportUnreadable(f"it is longer than {REPORT_BYTES >> 20} MiB")
    return data


def _without_report_line(result: ProcessResult, pipe: Path) -> ProcessResult:
    """The result without pytest's line about our report, whose path differs in each attempt."""
    line = re.compile(rf"^.*generated xml file: {re.escape(str(pipe))}.*(?:\n|\Z)", re.MULTILINE)
    shown = replace(result.stdout, text=line.sub("", result.stdout.text))
    return replace(result, stdout=shown)
