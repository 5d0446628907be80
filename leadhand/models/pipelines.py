"""Finds pipelines whose last program hides the exit code of the others (pure)."""

from __future__ import annotations

import shlex
from itertools import groupby

#: Programs that pass text on and succeed, whatever wrote it. `grep` is none: its code is meant.
_PASS_ON = frozenset({
    "cat", "column", "cut", "expand", "fold", "head", "less", "more", "nl", "sort", "tac", "tail",
    "tee", "tr", "ts", "uniq", "wc",
})  # fmt: skip
#: What ends a pipeline, and the signs of a shell that looks at each of its programs.
_ENDS, _LOOKS = frozenset({";", "&&", "||", "&", "\n"}), ("pipefail", "PIPESTATUS")


def hidden_exit_code(command: str) -> str | None:
    """Returns a warning if a command's exit code is that of a program that always succeeds.

    >>> print(hidden_exit_code("pytest -q 2>&1 | tee log"))
    the exit code of 'pytest -q 2>&1 | tee log' is that of tee, so that it never fails: write \
bash -c 'set -o pipefail; ...', or `> log` in place of the pipe
    >>> hidden_exit_code("pytest | grep -q passed"), hidden_exit_code("a | tee log; test -s log")
    (None, None)
    >>> hidden_exit_code("bash -o pipefail -c 'pytest | tee log'"), hidden_exit_code("echo '| tee'")
    (None, None)
    """
    if "|" not in command or any(one in command for one in _LOOKS):
        return None
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;\n")
        lexer.whitespace, lexer.whitespace_split = " \t\r", True
        words = list(lexer)
    except ValueError:
        return None
    pipelines = [list(part) for is_end, part in groupby(words, _ENDS.__contains__) if not is_end]
    last = pipelines[-1] if pipelines else []
    programs = [list(part) for is_pipe, part in groupby(last, _is_pipe) if not is_pipe]
    if len(programs) < 2 or programs[-1][0].rpartition("/")[2] not in _PASS_ON:
        return None
    program = programs[-1][0].rpartition("/")[2]
    shown = command.strip()
    shown = shown if len(shown) <= 120 else f"{shown[:119]}…"
    return (
        f"the exit code of {shown!r} is that of {program}, so that it never fails: write"
        " bash -c 'set -o pipefail; ...', or `> log` in place of the pipe"
    )


def _is_pipe(word: str) -> bool:
    return word in ("|", "|&")
