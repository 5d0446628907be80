"""Brings the branch of a session's worktree into the branch that the user has checked out.

The merge is computed without the user's tree (`git merge-tree`), and arrives as a fast-forward: it
is there as a whole, or not at all.
"""

from __future__ import annotations

from pathlib import Path

from workers.workspaces import worktrees
from workers.workspaces.fast_forward import PROTECTED, is_protected
from workers.workspaces.git import Git, WorkspaceRefused, identity
from workers.workspaces.in_progress import refuse_in_progress
from workers.workspaces.layout import Record
from workers.workspaces.repository import is_ancestor
from workers.workspaces.user_tree import check_clean, forward, listed

_HEADS = "refs/heads/"
_UNJUDGED = "the checkers have not judged this merge"
#: The exit codes of `git merge-tree`; others are errors, such as of a git that does not know it.
_CLEAN, _CONFLICT = 0, 1


def apply_branch(git: Git, path: Path, record: Record, session: str) -> str:
    """Merges a session's commits into the user's branch and returns what was done.

    `git` works in the folder that the session was started in, under the repository's lock; `path`
    is the worktree, which may be gone. Raises WorkspaceRefused, and has changed nothing then.
    """
    top = Path(git("rev-parse", "--show-toplevel"))
    refuse_in_progress(git, path)
    if path.is_dir() and not worktrees.is_detached(git, path):
        worktrees.keep_unfinished(git, path, record.branch)
    tip = worktrees.tip(git, record.branch)
    if tip is None:
        raise WorkspaceRefused(f"the branch {record.branch!r} is gone")
    target = _check_target(git, top, record)
    head = git("rev-parse", "HEAD")
    if is_ancestor(git, tip, head):
        return f"{target} has all commits of {record.branch} already"
    check_clean(git, top)
    if is_ancestor(git, head, tip):
        forward(git, tip)
        return f"{target} was fast-forwarded to {tip[:12]}"
    merged = _merge(git, head, tip, f"Merge {record.branch} (session {session})")
    forward(git, merged)
    return f"{record.branch} was merged into {target} as {merged[:12]}; {_UNJUDGED}"


def _check_target(git: Git, top: Path, record: Record) -> str:
    """The name of the branch that gets the commits. Raises WorkspaceRefused."""
    by_hand = f"run `git merge {record.branch}` on the branch that is to have its work"
    if not record.target.startswith(_HEADS):
        raise WorkspaceRefused(f"no branch was checked out when the session started; {by_hand}")
    target = record.target.removeprefix(_HEADS)
    head = git.ask("symbolic-ref", "--quiet", "HEAD")
    if head != record.target:
        now = "no branch is" if head is None else f"{head.removeprefix(_HEADS)!r} is"
        raise WorkspaceRefused(
            f"{now} checked out in {str(top)!r}, but the session started from {target!r}; check out"
            f" {target!r}, or {by_hand}"
        )
    if is_protected(git, target):
        raise WorkspaceRefused(f"the branch {target!r} is protected ({PROTECTED}); {by_hand}")
    return target


def _merge(git: Git, ours: str, theirs: str, message: str) -> str:
    """The commit that merges both. Raises WorkspaceRefused with the files in conflict."""
    code, out, err = git.run(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", ours, theirs
    )
    if code not in (_CLEAN, _CONFLICT):
        raise WorkspaceRefused(
            "the branch has moved on, and git cannot merge without a working tree"
            f" ({next(iter(err.splitlines()), f'code {code}')}); git 2.38 or newer can, or merge it"
            " yourself"
        )
    tree, *files = out.splitlines()
    if code == _CONFLICT:
        raise WorkspaceRefused(
            f"nothing was changed: both sides changed {listed(files)}; merge the branch yourself"
        )
    return git(*identity(git), "commit-tree", tree, "-p", ours, "-p", theirs, "-m", message)
