"""Checks whether git tracks a folder, without running a program that the repository configures."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from leadhand.models.git_settings import QUIET

_TIMEOUT_S = 10.0
#: Settings against file-system monitors, hooks and nested bare repositories.
_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "safe.bareRepository=explicit")


def is_tracked(folder: Path, env: Mapping[str, str]) -> bool:
    """Whether git tracks the folder or a file in it; False without git."""
    above = folder.parent.resolve()
    program = shutil.which("git", path=env.get("PATH"))
    if program is None or not any((one / ".git").exists() for one in (above, *above.parents)):
        return False
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    try:
        listed = subprocess.run(  # noqa: S603 - an argv, no shell
            [program, *settings, "ls-files", "-z", "--", f":(icase,literal){folder.name}"],
            cwd=above,
            env={**{n: text for n, text in env.items() if not n.startswith("GIT_")}, **QUIET},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and bool(listed.stdout)
