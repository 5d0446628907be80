"""Brings the branch of a session's worktree into the branch that the user has checked out.

The merge is computed without the user's tree (`git merge-tree`), so that it can be checked before
it arrives as a fast-forward: it is there as a whole, or not at all.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from workers.workspaces import worktrees
from workers.workspaces.fast_forward import PROTECTED, is_protected
from workers.workspaces.git import Git, GitFailed, WorkspaceRefused, identity
from workers.workspaces.in_progress import refuse_in_progress
from workers.workspaces.layout import Record
from workers.workspaces.repository import is_ancestor
from workers.workspaces.user_tree import (
    forward,
    listed,
    refuse_overwriting,
    refuse_waiting,
    uncommitted,
)

_HEADS = "refs/heads/"
#: The exit codes of `git merge-tree`; others are errors, such as of a git that does not know it.
_CLEAN, _CONFLICT = 0, 1


class MergedWork(BaseModel):
    """A session's work together with that of the user's branch, in a commit without a branch."""

    model_config = ConfigDict(frozen=True)

    #: The user's branch, and the commit of it that was merged.
    target: str
    old: str
    #: The session's branch, and its newest commit.
    branch: str
    tip: str
    #: The commit that has both: one of these two, or a merge of them.
    new: str


class Arrived(BaseModel):
    """The user's branch has the merged work."""

    text: str
    #: Whether it had it before.
    is_old: bool = False
    #: Files of the user's with changes that are in no commit, so that no checker saw them.
    uncommitted: list[str] = []


def merge_branch(git: Git, path: Path, record: Record, session: str) -> MergedWork:
    """Merges a session's commits with the user's branch, which stays where it is.

    `git` works in the folder that the session was started in, under the repository's lock; `path`
    is the worktree, which may be gone. Raises WorkspaceRefused if the user's branch cannot get the
    work, and has changed nothing then.
    """
    top = Path(git("rev-parse", "--show-toplevel"))
    refuse_in_progress(git, path)
    if path.is_dir() and not worktrees.is_detached(git, path):
        worktrees.keep_unfinished(git, path, record.branch)
    tip = worktrees.tip(git, record.branch)
    if tip is None:
        raise WorkspaceRefused(f"the branch {record.branch!r} is gone")
    target = _check_target(git, top, record)
    old = git("rev-parse", "HEAD")
    if is_ancestor(git, tip, old):
        new = old
    else:
        refuse_waiting(git, top)
        message = f"Merge {record.branch} (session {session})"
        new = tip if is_ancestor(git, old, tip) else _merge(git, old, tip, message)
        refuse_overwriting(git, top, new)
    return MergedWork(target=target, old=old, branch=record.branch, tip=tip, new=new)


def is_tree(git: Git, work: MergedWork, digest: str) -> bool:
    """Whether merged work is the state of the session's worktree that has this digest."""
    return digest == f"git:{git('rev-parse', f'{work.new}^{{tree}}')}"


def land_work(git: Git, record: Record, work: MergedWork) -> Arrived | None:
    """Fast-forwards the user's branch to merged work; None if the branch has moved since.

    May be called again after a kill at any point. Raises WorkspaceRefused, and has changed nothing
    then.
    """
    top = Path(git("rev-parse", "--show-toplevel"))
    target = _check_target(git, top, record)
    text = _describe(target, work)
    head = git("rev-parse", "HEAD")
    if is_ancestor(git, work.new, head):
        return Arrived(text=text, is_old=work.new == work.old)
    if head != work.old:
        return None
    refuse_waiting(git, top)
    try:
        forward(git, work.new)
    except GitFailed:
        if git.uncancelled()("rev-parse", "HEAD") == work.old:
            raise
        return None
    return Arrived(text=text, uncommitted=uncommitted(git))


def _describe(target: str, work: MergedWork) -> str:
    if work.new == work.old:
        return f"{target} has all commits of {work.branch} already"
    if work.new == work.tip:
        return f"{target} was fast-forwarded to {work.new[:12]}"
    return f"{work.branch} was merged into {target} as {work.new[:12]}"


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
