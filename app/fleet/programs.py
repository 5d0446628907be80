"""Finds the program of a command, and explains why a path is no program or no folder."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

#: Shell builtins and keywords, which are not programs on the PATH.
_BUILTINS = frozenset(shlex.split(
    "'.' : [ alias break cd command continue echo eval exec exit export false for if printf pwd"
    " read set shift test time trap true type ulimit umask unset until wait while '{' '('"
))  # fmt: skip
_SHELL_SIGNS = frozenset("|&;<>()$`\\\"'*?[#~=%!{}\n")


def why_no_program(path: Path) -> str:
    """Returns why the file cannot be executed, with the fix; '' if it can.

    >>> why_no_program(Path("/"))
    'it is a folder; name a program in it'
    """
    if path.is_dir():
        return "it is a folder; name a program in it"
    if not path.exists():
        return "it is not found; install it or give its path"
    if not path.is_file() or not os.access(path, os.X_OK):
        return f"it is not executable; run `chmod +x {path.name}`, or start it by its interpreter"
    return ""


def why_no_folder(path: Path) -> str:
    """Returns why a path is not a folder, with the fix; '' if it is one."""
    if path.is_dir():
        return ""
    if path.exists():
        return "it is a file; name a folder"
    return "there is no such folder; create it or name another"


def program_of(command: str) -> str | None:
    """Returns the program in a command line, its first word; None if only a shell can find it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or words[0] in _BUILTINS or _SHELL_SIGNS.intersection(words[0]):
        return None
    return words[0]
