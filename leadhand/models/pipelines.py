"""Finds commands whose exit code hides that of the programs that they run (pure)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: Programs that pass text on and succeed, whatever wrote it. `grep` is none: its code is meant.
_PASS_ON = frozenset({
    "cat", "column", "cut", "expand", "fold", "head", "less", "more", "nl", "sort", "tac", "tail",
    "tee", "tr", "ts", "uniq", "wc",
})  # fmt: skip
#: Commands that always succeed.
_SUCCEED = frozenset({"true", ":", "echo", "printf"})
#: Words before the program of a command.
_STARTERS = frozenset({"sudo", "command", "builtin", "env", "nice", "time", "(", "{"})
#: The signs of a shell that looks at each of its programs, or that ends before its last one.
_LOOKS = re.compile(
    r"pipefail|PIPESTATUS|\bset\s+-\w*e|\btrap\b|\b(exit|return)\b(?=.*[;&|\n])", re.DOTALL
)
_REDIRECTION = re.compile(r"&>+|[0-9]*[<>]&[0-9-]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=(?!.*(?:\$\(|`))", re.DOTALL)


class _Pipeline(NamedTuple):
    """The programs of a pipeline, each with its arguments, and the sign before it."""

    sign: str
    programs: list[list[str]]

    @property
    def last(self) -> str:
        """The name of the last program; empty for one that only sets variables."""
        return _program(self.programs[-1]).rpartition("/")[2]

    @property
    def passes_on(self) -> bool:
        """Whether its last program passes on what the others wrote, and succeeds."""
        return len(self.programs) > 1 and self.last in _PASS_ON

    @property
    def is_hidden(self) -> bool:
        """Whether its exit code is 0 whatever its programs find."""
        return self.passes_on or _succeeds(self.programs[-1])

    @property
    def finds_something(self) -> bool:
        """Whether one of its programs may fail."""
        return not all(map(_succeeds, self.programs[: -1 if self.passes_on else None]))


def hidden_exit_code(command: str) -> str | None:
    """Returns a warning if a command does not fail where a program in it does.

    >>> print(hidden_exit_code("pytest -q 2>&1 | tee log"))
    the exit code of 'pytest -q 2>&1 | tee log' is that of tee, which never fails: write \
bash -c 'set -o pipefail; ...', or `> log` in place of the pipe
    >>> print(hidden_exit_code("pytest || true"))
    the exit code of 'pytest || true' is that of true, which never fails: leave out `|| true`
    >>> print(hidden_exit_code("lint=true"))
    'lint=true' only sets variables, so that it never fails: a checker is named as in 'lint: true'
    >>> hidden_exit_code("pytest | grep -q passed"), hidden_exit_code("a | tee log; test -s log")
    (None, None)
    >>> hidden_exit_code("bash -o pipefail -c 'pytest | tee log'"), hidden_exit_code("echo '| tee'")
    (None, None)
    """
    pipelines = [] if _LOOKS.search(command) else _pipelines(command)
    if not pipelines or (_may_fail(pipelines) and not pipelines[-1].passes_on):
        return None
    shown = command.strip()
    shown = shown if len(shown) <= 120 else f"{shown[:119]}…"
    last = pipelines[-1]
    if not last.last:
        name, _, rest = shown.partition("=")
        named = f": a checker is named as in {f'{name}: {rest}'!r}" if len(pipelines) == 1 else ""
        return f"{shown!r} only sets variables, so that it never fails{named}"
    if not any(one.finds_something for one in pipelines):
        return None
    return f"the exit code of {shown!r} is that of {last.last}, which never fails: {_fix(last)}"


def _fix(last: _Pipeline) -> str:
    if len(last.programs) > 1:
        return "write bash -c 'set -o pipefail; ...', or `> log` in place of the pipe"
    if last.sign == "||":
        return f"leave out `|| {' '.join(last.programs[-1])}`"
    return "join the commands with &&"


def _may_fail(pipelines: Sequence[_Pipeline]) -> bool:
    may = True
    for one in pipelines:
        match one.sign:
            case "&&":
                may = may or not one.is_hidden
            case "||":
                may = may and not one.is_hidden
            case _:
                may = not one.is_hidden
    return may


def _pipelines(command: str) -> list[_Pipeline]:
    """The pipelines of a command line; none for one that cannot be read."""
    lexer = shlex.shlex(_REDIRECTION.sub(" ", command), posix=True, punctuation_chars="|&;\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    try:
        return list(_grouped(list(lexer)))
    except ValueError:
        return []


def _grouped(words: Sequence[str]) -> Iterator[_Pipeline]:
    sign, programs = "", [list[str]()]
    for word in words:
        operator = word.strip("\n") or ";" if set(word) <= set("|&;\n") else ""
        if operator in ("|", "|&"):
            programs.append([])
        elif operator:
            if programs[-1]:
                yield _Pipeline(sign, programs)
                programs = [[]]
            sign = operator
        else:
            programs[-1].append(word)
    if programs[-1]:
        yield _Pipeline(sign, programs)


def _succeeds(words: Sequence[str]) -> bool:
    program = _program(words)
    return not program or program in _SUCCEED or [*words[-2:]] == ["exit", "0"]


def _program(words: Sequence[str]) -> str:
    return next((w for w in words if w not in _STARTERS and not _ASSIGNMENT.match(w)), "")
