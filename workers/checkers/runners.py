"""Reads from the words of a command which tests it runs and where it reports them (pure)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from app.compiler.checker_names import program_of

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
