"""Reads reports of test runs: JUnit XML, and the output of other runners (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from xml.parsers import expat

from leadhand.models.counts import Counts

Ended = Literal["passed", "failed", "skipped"]

#: The worse end of a test counts: pytest reports a test twice whose teardown failed.
_RANK: Mapping[Ended, int] = {"skipped": 0, "passed": 1, "failed": 2}
_NOT_RUN = frozenset({"notrun", "disabled", "skipped"})
_DECLARATION = re.compile(rb"<\?xml\s")


class ReportUnreadable(Exception):
    """The report of a test run is no JUnit XML, or was cut."""


@dataclass(frozen=True)
class TestRun:
    """The tests of a run: how many ended how, and their names where the report has them."""

    __test__ = False  # of pytest: no class of tests

    counts: Counts
    failed: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass
class _Suite:
    """The tests of one document."""

    began: datetime | None = None
    tests: dict[str, Ended] = field(default_factory=dict)


def read_junit(data: bytes) -> TestRun | None:
    """Reads JUnit XML: one document or several in a row, one for each run; None if it is empty.

    Raises ReportUnreadable.
    """
    starts = [found.start() for found in _DECLARATION.finditer(data)] or [0]
    documents = [data[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    suites: list[_Suite] = []
    for document in documents if data.strip() else ():
        suite = _read_document(document)
        suites = [*(one for one in suites if not _is_within(one, suite)), suite]
    return _run(suites) if suites else None


def joined(runs: Iterable[TestRun | None]) -> TestRun | None:
    """Adds test runs; None where no tests were reported."""
    found = [run for run in runs if run is not None]
    if len(found) < 2:
        return found[0] if found else None
    total: Counter[str] = Counter()
    for run in found:
        total.update(run.counts.model_dump())
    return TestRun(
        Counts.model_validate(total),
        tuple(name for run in found for name in run.failed),
        tuple(dict.fromkeys(name for run in found for name in run.names)),
    )


def _is_within(inner: _Suite, outer: _Suite) -> bool:
    """Whether a run began after another that ended later: a test of the other one ran it."""
    if inner.began is None or outer.began is None:
        return False
    return inner.began.timestamp() > outer.began.timestamp()


def _run(suites: Iterable[_Suite]) -> TestRun:
    ends = [(name, ended) for suite in suites for name, ended in suite.tests.items()]
    found = Counter(ended for _, ended in ends)
    return TestRun(
        Counts(
            passed=found["passed"],
            failed=found["failed"],
            skipped=found["skipped"],
            collected=len(ends),
        ),
        tuple(name for name, ended in ends if ended == "failed"),
        tuple(dict.fromkeys(name for name, _ in ends)),
    )


def _read_document(data: bytes) -> _Suite:
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise ReportUnreadable(str(error)) from error
    return reader.suite


class _Reader:
    """Collects the tests of one document; nothing else of it is kept."""

    def __init__(self) -> None:
        self.suite = _Suite()
        self._name = ""
        self._ended: Ended = "passed"
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = _refuse
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        if element == "testsuite" and self.suite.began is None:
            self.suite.began = _time(attributes.get("timestamp", ""))
        elif element == "testcase":
            place, name = attributes.get("classname", ""), attributes.get("name", "")
            self._name = f"{place}::{name}" if place else name
            is_left = {attributes.get("status"), attributes.get("result")} & _NOT_RUN
            self._ended = "skipped" if is_left else "passed"
        elif element in ("failure", "error"):
            self._ended = "failed"
        elif element == "skipped" and self._ended != "failed":
            self._ended = "skipped"

    def _end(self, element: str) -> None:
        if element == "testcase":
            before = self.suite.tests.get(self._name)
            worse = before is None or _RANK[self._ended] > _RANK[before]
            self.suite.tests[self._name] = self._ended if worse or before is None else before


def _refuse(*_: object) -> None:
    raise ReportUnreadable("it declares a document type")


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
