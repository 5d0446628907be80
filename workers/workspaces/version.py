"""Checks the version of git: worktrees are removed by commands that older ones do not have."""

from __future__ import annotations

import re

from workers.workspaces.git import Git, WorkspaceRefused

#: The first version with all commands that worktrees need.
OLDEST = (2, 17)
_VERSION = re.compile(r"(\d+)\.(\d+)")


def check_version(git: Git, otherwise: str) -> None:
    """Raises WorkspaceRefused if the installed git is too old."""
    text = git("version")
    found = _VERSION.search(text)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise WorkspaceRefused(
            f"git is too old for worktrees ({text}); install {needed} or newer, {otherwise}"
        )
