"""Reads reports of test runs: JUnit XML, and the output of other runners (pure)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
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


#: What a terminal shows in colours.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NODE = re.compile(
    r"^(?:#|\N{INFORMATION SOURCE}) (tests|pass|fail|cancelled|skipped|todo) (\d+)$", re.MULTILINE
)
_NODE_FAILED = re.compile(
    r"^\s*(?:not ok \d+ - (.+)|\N{HEAVY BALLOT X} (.+) \([\d.]+ms\))$", re.MULTILINE
)
_CARGO = re.compile(
    r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored; \d+ measured", re.MULTILINE
)
_CARGO_FAILED = re.compile(r"^test (\S.*) \.\.\. FAILED$", re.MULTILINE)
_GO_TEST = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(\d", re.MULTILINE)
_GO_RUN = re.compile(r"^=== RUN ", re.MULTILINE)
_GO_PACKAGE = re.compile(r"^(ok  |FAIL|\?   )\t(\S+)(.*)$", re.MULTILINE)
_GO_NONE = re.compile(r"\[no test(s to run| files)\]")
_TAP_PLAN = re.compile(r"^1\.\.(\d+)(?:[ \t]*#.*)?$", re.MULTILINE)
_TAP_TEST = re.compile(
    r"^(not )?ok\b(?:[ \t]+(\d+))?(?:[ \t]+-)?[ \t]*([^#\n]*)(?:#[ \t]*(SKIP|TODO))?",
    re.MULTILINE | re.IGNORECASE,
)
_ENDS: Mapping[str, Ended] = {
    "PASS": "passed", "pass": "passed", "FAIL": "failed", "fail": "failed", "SKIP": "skipped",
    "skip": "skipped",
}  # fmt: skip


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


def read_output(text: str) -> TestRun | None:
    """Reads the tests from the output of go test, cargo test, node's runner or TAP; else None.

    >>> run = read_output("test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured")
    >>> run.counts.text, read_output("all is fine")
    ('5 passed, 1 skipped', None)
    """
    text = _COLOUR.sub("", text).replace("\r\n", "\n")
    readers = (_read_node, _read_cargo, _read_go_json, _read_go, _read_tap)
    return next((run for read in readers if (run := read(text)) is not None), None)


def _read_node(text: str) -> TestRun | None:
    """The summaries of node's runner, as it writes them for people and in TAP."""
    total: Counter[str] = Counter()
    for word, number in _NODE.findall(text):
        total[word] += int(number)
    if not {"tests", "pass", "fail"} <= total.keys():
        return None
    skipped = total["skipped"] + total["todo"]
    failed = total["fail"] + total["cancelled"]
    names = [a or b for a, b in _NODE_FAILED.findall(text)]
    return _counted(total["pass"], failed, skipped, total["tests"], names=dict.fromkeys(names))


def _read_cargo(text: str) -> TestRun | None:
    found = [[int(number) for number in numbers] for numbers in _CARGO.findall(text)]
    if not found:
        return None
    passed, failed, ignored = (sum(column) for column in zip(*found, strict=True))
    return _counted(passed, failed, ignored, names=_CARGO_FAILED.findall(text))


def _read_go_json(text: str) -> TestRun | None:
    """The events of `go test -json`: one line each."""
    suite = _Suite()
    found = False
    for line in text.splitlines():
        if not line.startswith("{") or '"Action"' not in line:
            continue
        with suppress(ValueError):
            event = json.loads(line)
            found = found or "Package" in event
            name, ended = event.get("Test"), _ENDS.get(str(event.get("Action")))
            if isinstance(name, str) and ended is not None:
                suite.tests[f"{event.get('Package', '')}.{name}"] = ended
    return _run([suite]) if found else None


def _read_go(text: str) -> TestRun | None:
    """The tests that `go test -v` lists; the packages where there are none."""
    packages = _GO_PACKAGE.findall(text)
    if not packages:
        return None
    tests = [(name, _ENDS[word]) for word, name in _GO_TEST.findall(text)]
    failed = [name for name, ended in tests if ended == "failed"]
    if not _GO_RUN.search(text):  # without -v only failed tests are listed
        tests = [(name, _package_end(word, rest)) for word, name, rest in packages]
    ends = Counter(ended for _, ended in tests)
    names = failed or [name for name, ended in tests if ended == "failed"]
    return _counted(ends["passed"], ends["failed"], ends["skipped"], names=names)


def _package_end(word: str, rest: str) -> Ended:
    if word == "FAIL":
        return "failed"
    return "skipped" if _GO_NONE.search(rest) else "passed"


def _read_tap(text: str) -> TestRun | None:
    """The test points that are not indented; those of the plan that are missing have failed."""
    plans = [int(number) for number in _TAP_PLAN.findall(text)]
    points = _TAP_TEST.findall(text)
    if not plans or (any(plans) and not points):
        return None
    found: Counter[Ended] = Counter()
    failed: list[str] = []
    for is_bad, number, name, directive in points:
        ended: Ended = "skipped" if directive else "failed" if is_bad else "passed"
        found[ended] += 1
        if ended == "failed":
            failed.append(name.strip() or number)
    missing = max(0, sum(plans) - found.total())
    failures = found["failed"] + missing
    return _counted(found["passed"], failures, found["skipped"], names=failed)


def _counted(
    passed: int, failed: int, skipped: int, collected: int = 0, *, names: Iterable[str] = ()
) -> TestRun:
    collected = max(collected, passed + failed + skipped)
    counts = Counts(passed=passed, failed=failed, skipped=skipped, collected=collected)
    return TestRun(counts, tuple(names))
