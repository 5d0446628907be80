"""Finds repositories, and reads committed files without running a program that they name."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from leadhand.models.git_settings import QUIET

_TIMEOUT_S = 10.0
#: Settings against file-system monitors, hooks and nested bare repositories.
_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "safe.bareRepository=explicit")


def repository_top(folder: Path) -> Path | None:
    """Returns the top of the repository that a folder is in; None outside of one. Runs no git."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


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
