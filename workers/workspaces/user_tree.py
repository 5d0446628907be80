"""Changes the user's own working tree: looks whether that may be done, and fast-forwards it.

Uncommitted changes are no obstacle, unless the new commits have the same files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from leadhand.models.text import list_first
from workers.workspaces.git import DIFF, Git, GitFailed, WorkspaceRefused
from workers.workspaces.repository import await_locks, refuse_rebase

#: Files in an error.
_SHOWN = 10
#: What git keeps while it waits for a person, and the name of that.
_WAITING = {"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert"}


def refuse_waiting(git: Git, top: Path) -> None:
    """Raises WorkspaceRefused while a rebase, merge, cherry-pick or revert is in progress."""
    await_locks(git)
    refuse_rebase(git, top, "and apply the work then")
    for name, what in _WAITING.items():
        if git.ask("rev-parse", "--verify", "--quiet", name) is not None:
            raise WorkspaceRefused(
                f"a {what} is in progress in {str(top)!r}; finish or end it first"
            )


def refuse_overwriting(git: Git, top: Path, commit: str) -> None:
    """Raises WorkspaceRefused if a fast-forward to a commit would overwrite what is uncommitted.

    So it is known before anything is checked; git itself decides in the end.
    """
    options = (*DIFF, "--name-only", "--no-renames", "-z")
    changed = names_of(git(*options, "HEAD", commit))
    new = names_of(git(*options, "--diff-filter=A", "HEAD", commit))
    open_ = {*names_of(git(*options, "HEAD"))}
    blocked = [one for one in changed if one in open_]
    blocked += [one for one in new if one not in open_ and os.path.lexists(top / one)]
    if blocked:
        raise WorkspaceRefused(_overwritten(blocked))


def uncommitted(git: Git) -> list[str]:
    """Returns the files of the working tree that have uncommitted changes or are not tracked.

    It is not cancelled: it is called once the branch has moved.
    """
    git = git.uncancelled()
    found = names_of(git("status", "--porcelain", "--untracked-files=normal", "--no-renames", "-z"))
    return [one[3:] for one in found]


def name_uncommitted(files: Sequence[str]) -> str:
    """Formats a note on uncommitted files, which are in no commit that was checked; '' for none."""
    return f"; your uncommitted changes were not checked with it: {listed(files)}" if files else ""


def names_of(printed: str) -> list[str]:
    """Splits what git prints with -z."""
    return [one for one in printed.split("\0") if one]


def forward(git: Git, commit: str) -> None:
    """Moves the checked-out branch and its files to a commit. Raises WorkspaceRefused.

    Nothing ends git meanwhile, and it overwrites no file of the user, ignored ones included.
    """
    options = ("--ff-only", "--no-overwrite-ignore", "--quiet", "--no-stat")
    try:
        git.uncancelled()("merge", *options, commit)
    except GitFailed as error:
        files = [line.strip() for line in error.stderr.splitlines() if line.startswith("\t")]
        if not files:
            raise
        raise WorkspaceRefused(_overwritten(files)) from None


def _overwritten(files: list[str]) -> str:
    return f"nothing was changed: {listed(files)} would be overwritten; move or commit them first"


def listed(files: Sequence[str]) -> str:
    """Formats the first of these file names, and how many more there are."""
    return list_first(files, _SHOWN)
