"""Finds and ends a rebase or a bisect that was left in the middle in a worktree.

Its HEAD is on no branch meanwhile, and git lets no other worktree check out the branch.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from workers.workspaces.git import Git, WorkspaceRefused

_HEADS = "refs/heads/"
_REBASES = ("rebase-merge", "rebase-apply")


class InProgress(NamedTuple):
    """What was left in the middle."""

    #: `rebase` or `bisect`.
    what: str
    #: The branch that was checked out before.
    branch: str


def find_in_progress(git: Git, path: Path) -> InProgress | None:
    """Returns the rebase or bisect in progress in a worktree; None if there is none."""
    here = git.at(path)
    if not path.is_dir() or here.ask("rev-parse", "--git-dir") is None:
        return None
    for name in _REBASES:
        branch = _read(here, f"{name}/head-name")
        if branch is not None:
            return InProgress("rebase", branch.removeprefix(_HEADS))
    branch = _read(here, "BISECT_START")
    return None if branch is None else InProgress("bisect", branch.removeprefix(_HEADS))


def refuse_in_progress(git: Git, path: Path) -> None:
    """Raises WorkspaceRefused while a rebase or bisect is in progress in a worktree."""
    found = find_in_progress(git, path)
    if found is None:
        return
    how = "finish it (git rebase --continue) or end it (git rebase --abort)"
    if found.what == "bisect":
        how = "end it (git bisect reset)"
    raise WorkspaceRefused(f"a {found.what} is in progress in {str(path)!r}; {how} first")


def quit_in_progress(git: Git, path: Path) -> None:
    """End a rebase or bisect; files and HEAD stay as they are. Raises GitFailed."""
    found, here = find_in_progress(git, path), git.at(path)
    if found is not None and found.what == "bisect":
        here("bisect", "reset", "HEAD")
    elif found is not None:
        here.ask("rebase", "--quit")
        for name in _REBASES:  # a git that was killed may have left too little for --quit
            shutil.rmtree(_path(here, name), ignore_errors=True)


def _read(here: Git, name: str) -> str | None:
    try:
        return _path(here, name).read_text().strip() or None
    except OSError:
        return None


def _path(here: Git, name: str) -> Path:
    return here.folder / here("rev-parse", "--git-path", name)
