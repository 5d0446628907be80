"""Names the checkers of a loop."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from leadhand.models.documents import Checker

_LONGEST = 40
#: Words of a command that say how its program is started.
_STARTERS = re.compile(
    r"^(env|sudo|doas|nice|nohup|time|timeout|exec|command|npx|uv|uvx|poetry|pipx"
    r"|python[\d.]*|pypy[\d.]*|(ba|da|z|k|c|tc|fi)?sh|node|deno|bun|ruby|perl|php|Rscript|java)$"
)
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")
#: Options of starters that take the next word, such as the user of `sudo`.
_TAKES_WORD = {"-u", "-g", "-W", "-X", "-r"}
#: Those of which `run` is a subcommand.
_RUNNERS = {"uv", "poetry", "pipx"}
#: Arguments of the starters themselves, such as the seconds of `timeout`.
_NUMBER = re.compile(r"^\d+(\.\d+)?[smhd]?$")
#: What ends one command of a line.
_NEXT = re.compile(r"&&|\|\||;|\n")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SUFFIX = re.compile(r"\.(py|sh|bash|js|mjs|ts|rb|pl|php|R|jar)$")


def check_names(checkers: Sequence[Checker]) -> list[str]:
    """Returns a short, unique name for each checker: its given name, or one made from its command.

    >>> check_names([Checker.model_validate(one) for one in (
    ...     "cd src && ruff check .", "python3 -m pytest -q", "pytest -x", "agent(critic): Good?")])
    ['ruff', 'pytest', 'pytest-3', 'critic']
    """
    own = {_slug(checker.name) for checker in checkers if checker.name}
    names: list[str] = []
    for number, checker in enumerate(checkers, 1):
        name = _slug(_name_of(checker)) or f"check{number}"
        taken = names if checker.name else [*own, *names]
        names.append(name if name not in taken else _numbered(name, number, {*own, *names}))
    return names


def _numbered(name: str, number: int, taken: set[str]) -> str:
    """The name with its place among the checkers, or with the next number that is free."""
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:_LONGEST]


def _name_of(checker: Checker) -> str:
    if checker.name:
        return checker.name
    if checker.prompt:
        return checker.agent or "agent"
    if checker.rubric:
        return _stem(checker.rubric) or "rubric"
    if function := checker.callable or checker.tool:
        return function.rpartition(":")[2]
    return program_of(checker.command or "")


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]


def program_of(line: str) -> str:
    """Returns the program that a command runs, without leading `cd`, `env` and interpreters.

    Of a pipeline it has all programs: the first one alone may not be what decides.

    >>> program_of("false|tee log.txt"), program_of("cd x && make test 2>&1 | tee log")
    ('false-tee', 'make-tee')
    >>> program_of("grep '|' table"), program_of("python3 -m pytest -k 'a | b' | tail -3")
    ('grep', 'pytest-tail')
    >>> program_of("test $(ls | grep -c '^part') -le 1")
    'test'
    >>> program_of("cd sub && FOO=1 sudo -n env BAR=2 python3 -P checks/tidy.py src")
    'tidy'
    >>> program_of("bash -c 'make test'"), program_of("python3 -c 'import x'"), program_of("./run")
    ('make', 'python3', 'run')
    """
    parts = [part for part in _parts(line) if (words := _split(part)) and words[0] != "cd"]
    for part in parts or [line]:
        found = [_program(stage) for stage in _stages(part)]
        if found[0]:
            return "-".join(filter(None, found))
    first = _split(parts[0]) if parts else [line]
    return _short(first[0]) if first else ""


def _parts(line: str) -> list[str]:
    """The commands of a line; a sign within quotes ends none."""
    try:
        shlex.split(line)
    except ValueError:
        return [line]
    return [line] if re.search(r"['\"]", _NEXT.split(line)[0]) else _NEXT.split(line)


def _split(part: str) -> list[str]:
    try:
        return shlex.split(part)
    except ValueError:
        return part.split()


def _stages(part: str) -> list[list[str]]:
    """The words of each program of a pipeline; a sign in quotes or `$(...)` separates none."""
    signs = shlex.shlex(part, posix=False, punctuation_chars="|&")
    signs.whitespace_split, signs.commenters = True, ""
    stages: list[list[str]] = [[]]
    depth = 0
    try:
        for token in signs:
            bare = _QUOTED.sub("", token)
            depth = max(0, depth + bare.count("$(") - bare.count(")"))
            if token in ("|", "|&") and not depth:
                stages.append([])
            else:
                stages[-1].append(token)
    except ValueError:
        return [_split(part)]
    return [_split(" ".join(stage)) for stage in stages if stage] or [[]]


def _program(words: Sequence[str]) -> str:
    """The first word that is a program itself; empty where there is none."""
    started_by = ""
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        if _STARTERS.match(name):
            started_by = name
        elif started_by and word == "-c":
            inner = words[number + 1] if number + 1 < len(words) else ""
            return program_of(inner) if started_by.endswith("sh") else ""
        elif not (_ASSIGNMENT.match(word) or _is_of_starter(started_by, words, number)):
            return _short(word)
    return ""


def _is_of_starter(starter: str, words: Sequence[str], number: int) -> bool:
    """Whether the word is an argument of what starts the program."""
    word, before = words[number], words[number - 1]
    if not starter:
        return False
    is_argument = before in _TAKES_WORD or (word == "run" and starter in _RUNNERS)
    return is_argument or word.startswith("-") or _NUMBER.match(word) is not None


def _short(word: str) -> str:
    return _SUFFIX.sub("", word.rpartition("/")[2])
