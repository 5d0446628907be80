"""Changes the user's own working tree: looks whether that may be done, and fast-forwards it."""

from __future__ import annotations

from pathlib import Path

from workers.workspaces.git import Git, GitFailed, WorkspaceRefused
from workers.workspaces.repository import await_locks, refuse_rebase

#: Files in an error.
_SHOWN = 10
#: What git keeps while it waits for a person, and the name of that.
_WAITING = {"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert"}


def check_clean(git: Git, top: Path) -> None:
    """Raises WorkspaceRefused for a working tree with changes or with a rebase in progress."""
    await_locks(git)
    refuse_rebase(git, top, "and apply the work then")
    for name, what in _WAITING.items():
        if git.ask("rev-parse", "--verify", "--quiet", name) is not None:
            raise WorkspaceRefused(
                f"a {what} is in progress in {str(top)!r}; finish or end it first"
            )
    changed = git("status", "--porcelain", "--untracked-files=no").splitlines()
    if changed:
        count = (
            "1 uncommitted change" if len(changed) == 1 else f"{len(changed)} uncommitted changes"
        )
        raise WorkspaceRefused(f"{str(top)!r} has {count}; commit or stash them first")


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
        raise WorkspaceRefused(
            f"nothing was changed: {listed(files)} would be overwritten; move or commit them first"
        ) from None


def listed(files: list[str]) -> str:
    """Formats the first of these file names, and how many more there are."""
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return ", ".join(files[:_SHOWN]) + more
