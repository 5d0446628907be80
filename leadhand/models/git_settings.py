"""Runs git without a program that a repository names, to read a committed file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

#: The settings of a filter that name a program.
PROGRAMS = ("clean", "smudge", "process")
#: Lists the filters of a repository, for `filters_in`.
LIST_FILTERS = ("config", "-z", "--get-regexp", r"^filter\.")
#: Variables with which git asks nothing, writes no index and fetches nothing: a remote may name a
#: program, too.
QUIET: Mapping[str, str] = MappingProxyType({
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
})  # fmt: skip
_TIMEOUT_S = 10.0
#: Settings against file-system monitors, hooks and nested bare repositories.
_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "safe.bareRepository=explicit")


def filters_in(listed: bytes) -> dict[str, str]:
    r"""Returns the settings of filters by name, as LIST_FILTERS prints them.

    >>> filters_in(b"filter.a=b.clean\ncat\0filter.x.required\ntrue\0")
    {'filter.a=b.clean': 'cat', 'filter.x.required': 'true'}
    """
    lines = (os.fsdecode(line).partition("\n") for line in listed.split(b"\0") if line)
    return {name: value for name, _, value in lines}


def run_programs(filters: Mapping[str, str]) -> bool:
    """Whether git runs a program for one of these filters.

    >>> run_programs({"filter.a.clean": ""}), run_programs({"filter.a.clean": "cat"})
    (False, True)
    """
    return any(filters[name] and name.rpartition(".")[2] in PROGRAMS for name in filters)


def without_filters(filters: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Returns variables that disable filters: each is a program of the repository's choice.

    A `-c` option would end the name at its first `=`.
    """
    drivers = sorted({name.rpartition(".")[0] for name in filters})
    settings = [
        (f"{driver}.{part}", value)
        for driver in drivers
        for part, value in (*((part, "") for part in PROGRAMS), ("required", "false"))
    ]
    return settings_as_variables(settings, env)


def settings_as_variables(
    settings: Sequence[tuple[str, str]], env: Mapping[str, str]
) -> dict[str, str]:
    """Returns variables that set git's settings, beside those that an environment has.

    >>> settings_as_variables([("filter.a=b.clean", "")], {"GIT_CONFIG_COUNT": "2"})
    {'GIT_CONFIG_COUNT': '3', 'GIT_CONFIG_KEY_2': 'filter.a=b.clean', 'GIT_CONFIG_VALUE_2': ''}
    """
    text = env.get("GIT_CONFIG_COUNT", "")
    first = int(text) if text.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))} if settings else {}
    for number, (name, value) in enumerate(settings, first):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def repository_top(folder: Path) -> Path | None:
    """Returns the top of the repository that a folder is in; None outside of one. Runs no git."""
    above = (folder, *folder.parents)
    return next((one for one in above if os.path.exists(f"{one}/.git")), None)  # noqa: PTH110 - fast


def committed_text(folder: Path, name: str, env: Mapping[str, str]) -> str | None:
    """Returns a file at the repository's top as the newest commit has it; '' without that file.

    None if the folder is in no repository.
    """
    if repository_top(folder.resolve()) is None:
        return None
    found = _git(folder, env, "cat-file", "blob", f"HEAD:{name}")
    return (found or b"").decode(errors="replace")


def _git(folder: Path, env: Mapping[str, str], *arguments: str) -> bytes | None:
    """The output of a git command; None if it failed or there is no git."""
    program = shutil.which("git", path=env.get("PATH"))
    if program is None:
        return None
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    try:
        done = subprocess.run(  # noqa: S603 - an argv, no shell
            [program, *settings, *arguments],
            cwd=folder,
            env={**{n: text for n, text in env.items() if not n.startswith("GIT_")}, **QUIET},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
