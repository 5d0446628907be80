"""Builds the environment of a body: common variables, without Leadhand's own credentials."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Variables that every body gets.
PLAIN = frozenset({"PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER", "SHELL", "VIRTUAL_ENV"})
_PLAIN_PREFIX = "LC_"
#: The prefix of variables that only Leadhand sets; an agent's entry cannot pass them on.
OURS = "LEADHAND_"
#: The token that outlives the attempt; a body gets it if its agent's entry names the variable.
SESSION_TOKEN = "LEADHAND_SESSION_TOKEN"  # noqa: S105 - its name

#: The name by which clients know this host; a body's own commands then use the same stacks.
_PLACE = "LEADHAND_PLACE"
#: Options that pytest reads before those of its command line.
_PYTEST_OPTIONS = "PYTEST_ADDOPTS"
#: The folder in which Python keeps bytecode, and looks for it: in none of those of the sources.
_BYTECODE = "PYTHONPYCACHEPREFIX"
#: Changes tox's settings: by default it passes on none of these variables. Its environments inherit
#: these sections of tox.ini and setup.cfg, of tox.toml, and of pyproject.toml.
_TOX = "TOX_OVERRIDE"
_TOX_PASSES = tuple(
    f"{section}.pass_env+={name}"
    for section in ("testenv", "env_run_base", "tool.tox.env_run_base")
    for name in (_PYTEST_OPTIONS, _BYTECODE)
)


def clean(inherited: Mapping[str, str], *, named: Iterable[str] = ()) -> dict[str, str]:
    """Returns the variables that a step's program inherits: common and `named` ones, no others.

    >>> clean({"PATH": "/bin", "LC_ALL": "C", "AWS_KEY": "x", "LEADHAND_SECRET": "y"})
    {'PATH': '/bin', 'LC_ALL': 'C'}
    """
    names = PLAIN.union(name for name in named if not name.startswith(OURS))
    return {
        name: value
        for name, value in inherited.items()
        if name in names or name.startswith(_PLAIN_PREFIX)
    }


def with_pytest_report(env: Mapping[str, str], path: Path) -> dict[str, str]:
    """Returns an environment in which pytest writes its JUnit report to a path, also within tox.

    >>> with_pytest_report({"PYTEST_ADDOPTS": "-x"}, Path("/a b"))["PYTEST_ADDOPTS"]
    "-x --junitxml='/a b'"
    """
    option = f"--junitxml={shlex.quote(str(path))}"
    return {
        **env,
        _PYTEST_OPTIONS: f"{env.get(_PYTEST_OPTIONS, '')} {option}".strip(),
        _TOX: ";".join([*filter(None, [env.get(_TOX)]), *_TOX_PASSES]),
    }


def with_bytecode_in(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Returns an environment in which Python runs no bytecode that is beside the sources.

    >>> with_bytecode_in({"A": "b"}, Path("/x"))
    {'A': 'b', 'PYTHONPYCACHEPREFIX': '/x'}
    """
    return {**env, _BYTECODE: str(folder)}


def is_plain(name: str) -> bool:
    """Whether every step's program gets the environment variable, such as PATH or LC_ALL."""
    return name in PLAIN or name.startswith(_PLAIN_PREFIX)


def place(inherited: Mapping[str, str]) -> dict[str, str]:
    """Returns LEADHAND_PLACE, the name of the worker's place, as a dict; empty if it is not set.

    >>> place({"LEADHAND_PLACE": "build-1", "LEADHAND_SECRET": "y"}), place({})
    ({'LEADHAND_PLACE': 'build-1'}, {})
    """
    return {_PLACE: inherited[_PLACE]} if inherited.get(_PLACE) else {}


def inherited() -> Mapping[str, str]:
    """Returns the worker's own environment, from which the environments of bodies are made."""
    return os.environ  # noqa: TID251
