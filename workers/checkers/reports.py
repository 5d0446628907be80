"""Reads reports of test runs: JUnit XML, and the output of other runners (pure)."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Literal, NamedTuple
from xml.parsers import expat

from app.compiler.workflow import program_of
from leadhand.models.verdicts import Counts

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
_PYTEST = frozenset({"pytest", "py.test"})
#: Programs that fail if a test does; any other program may mean the opposite.
_RUNNERS = _PYTEST | {
    "cargo", "coverage", "ctest", "go", "gmake", "gradle", "gradlew", "hatch", "just", "make",
    "mvn", "mvnw", "node", "nox", "npm", "npx", "pnpm", "prove", "task", "tox", "yarn",
}  # fmt: skip
#: The exit code of a runner of which tests failed; cargo then leaves out further test programs.
_FAILED = {"pytest": 1, "go": 1, "node": 1}
#: Options with which it stops at a failed test.
_STOPS = re.compile(r"^(-x|--exitfirst|--maxfail.*|--sw|--stepwise.*|--?failfast(=.*)?)$")
#: Options with which pytest runs no test.
_LISTS_ONLY = frozenset({
    "--version", "-V", "--help", "-h", "--collect-only", "--collectonly", "--co", "--fixtures",
    "--funcargs", "--fixtures-per-test", "--markers", "--setup-plan", "--cache-show",
})  # fmt: skip
_REPORT = re.compile(r"^--junit-?xml(?:=(.*))?$", re.DOTALL)
_SHELL_TEXT = re.compile(r"^-[a-z]*c$")
_OPERATORS = frozenset({";", "&&", "||", "&", "|", "|&", "\n"})


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


class RunnerCommand(NamedTuple):
    """What the words of a command say about the tests that it runs."""

    #: Whether it runs pytest in any case, so that a report must come.
    runs_pytest: bool = False
    #: Whether it only lists tests.
    lists_only: bool = False
    #: Whether a failed test fails the command.
    fails_with_tests: bool = False
    #: The exit code with which it says that tests failed, if it is one test runner and no more.
    failed_code: int | None = None
    #: The files that it names as JUnit reports, relative to its folder.
    reports: tuple[str, ...] = ()


def read_command(line: str) -> RunnerCommand:
    """Reads a shell command.

    >>> read_command("cd sub && timeout 60 python3 -m pytest -q --junitxml=out.xml").reports
    ('sub/out.xml',)
    >>> [read_command(one).runs_pytest for one in ("uv run pytest", "grep -q x log || pytest")]
    [True, False]
    >>> [read_command(one).fails_with_tests for one in ("bash -c 'make test'", "! pytest", "./x")]
    [True, False, False]
    """
    found = list(_programs(line, folder="", depth=0))
    runs = [one for one in found if one.is_pytest and not one.lists_only]
    return RunnerCommand(
        runs_pytest=any(not one.is_optional for one in runs),
        lists_only=not runs and any(one.lists_only for one in found),
        fails_with_tests=any(one.is_runner for one in found)
        and not any(one.is_negated for one in found),
        failed_code=_FAILED.get(found[0].name) if len(found) == 1 and not found[0].stops else None,
        reports=tuple(one.report for one in runs if one.report),
    )


class _Program(NamedTuple):
    name: str
    is_pytest: bool
    is_runner: bool
    lists_only: bool
    #: Whether it stops at a failed test.
    stops: bool
    is_negated: bool
    #: Whether it may not run, or where it reports is not known.
    is_optional: bool
    report: str


def _programs(line: str, *, folder: str, depth: int) -> Iterator[_Program]:
    after = ""
    for is_operator, group in groupby(_words(line), _OPERATORS.__contains__):
        words = list(group)
        if is_operator:
            after = words[-1]
            continue
        is_negated = words[0] == "!"
        words = words[1:] if is_negated else words
        if len(words) == 2 and words[0] == "cd":
            folder = str(Path(folder, words[1]))
            continue
        inner = _shell_text(words) if depth < 3 else None
        programs = [] if inner is None else _programs(inner, folder=folder, depth=depth + 1)
        for one in programs if inner is not None else (_program(words, folder),):
            yield one._replace(
                is_negated=one.is_negated or is_negated,
                is_optional=one.is_optional or after == "||",
            )


def _words(line: str) -> list[str]:
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;\n")
        lexer.whitespace, lexer.whitespace_split = " \t\r", True
        return [word.lstrip("({").rstrip(")}") or word for word in lexer]
    except ValueError:  # quotes without an end
        return []


def _shell_text(words: Sequence[str]) -> str | None:
    """The command in the words `bash -c COMMAND`; None for others."""
    for number, word in enumerate(words[:-1]):
        shells = any(before.endswith("sh") for before in words[:number])
        if shells and _SHELL_TEXT.match(word):
            return words[number + 1]
    return None


def _program(words: Sequence[str], folder: str) -> _Program:
    name = program_of(shlex.join(words))
    module = next((b for a, b in pairwise(words) if a == "-m"), "")
    is_pytest = name in _PYTEST or module in _PYTEST
    options = {*words} if is_pytest else set()
    report = _report(words, folder) if is_pytest else ""
    is_known = not any(sign in report for sign in "$`*?[")  # the shell's or its own
    return _Program(
        name="pytest" if is_pytest else name,
        is_pytest=is_pytest,
        is_runner=is_pytest or name in _RUNNERS,
        lists_only=bool(options & _LISTS_ONLY),
        stops=any(_STOPS.match(word) for word in words),
        is_negated=False,
        is_optional=not is_known,
        report=report if is_known else "",
    )


def _report(words: Sequence[str], folder: str) -> str:
    """The file of the option --junitxml; '' without one."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        found = _REPORT.match(word)
        if found is not None:
            name = following if found[1] is None else found[1]
            return str(Path(folder, name).expanduser()) if name else ""
    return ""
