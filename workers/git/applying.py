"""Brings work into the branch that the user has checked out: fast-forward or merge.

The merge is computed without the user's tree (`git merge-tree`), so that it can be checked before
it arrives as a fast-forward: it is there as a whole, or not at all.

Uncommitted changes are no obstacle, unless the new commits have the same files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from leadhand.models.text import list_first
from workers.git import worktrees
from workers.git.git import DIFF, Git, GitFailed, WorkspaceRefused, identity, names_of
from workers.git.layout import Record
from workers.git.repository import (
    await_locks,
    is_ancestor,
    refuse_in_progress,
    refuse_rebase,
    tip_of,
)
from workers.git.worktrees import holder_of, tip

#: Files in an error.
_SHOWN = 10
#: What git keeps while it waits for a person, and the name of that.
_WAITING = {"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert"}
_HEADS = "refs/heads/"
#: The setting of a repository that names branches which Leadhand never moves; may be repeated.
PROTECTED = "leadhand.protected"
#: The exit codes of `git merge-tree`; others are errors, such as of a git that does not know it.
_CLEAN, _CONFLICT = 0, 1


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


class Forwarded(NamedTuple):
    """A branch that has all commits of another one."""

    branch: str
    #: Its tip before and now; equal if it had all commits before.
    old: str
    new: str
    #: Files with uncommitted changes in the working tree that was moved.
    uncommitted: tuple[str, ...] = ()


def fast_forward(git: Git, source: str, target: str = "") -> Forwarded:
    """Fast-forwards the branch `target` to the branch `source`; a repeated call changes nothing.

    `git` works in the user's working tree, under the lock of the repository. Without a target it is
    the branch that is checked out there. Uncommitted changes in that tree stay as they are; they
    are in the way only if the new commits have the same files. A branch that is checked out
    elsewhere or protected is left alone.

    Raises WorkspaceRefused with the reason for which the branch was left as it is.
    """
    new = tip_of(git, f"{_HEADS}{source}")
    target = target or _checked_out(git)
    old = tip(git, target)
    if old is None:
        raise WorkspaceRefused(f"there is no branch {target!r}; name one that exists")
    if is_ancestor(git, new, old):
        return Forwarded(target, old, old)
    if is_protected(git, target):
        raise WorkspaceRefused(
            f"the branch {target!r} is protected ({PROTECTED}); merge {source!r} into it yourself"
        )
    if not is_ancestor(git, old, new):
        raise WorkspaceRefused(
            f"the branch {target!r} has commits that {source!r} has not, so it cannot be"
            f" fast-forwarded; merge it yourself with `git merge {source}`"
        )
    left = _move(git, source, target, old=old, new=new)
    return Forwarded(target, old, new, tuple(left))


def require_movable(git: Git, branch: str) -> str:
    """Returns the tip of a branch. Raises WorkspaceRefused if it is protected or checked out."""
    found = tip(git, branch)
    if found is None:
        raise WorkspaceRefused(f"there is no branch {branch!r}; create it (git branch {branch})")
    if is_protected(git, branch):
        raise WorkspaceRefused(
            f"the branch {branch!r} is protected ({PROTECTED}); name another one"
        )
    holder = holder_of(git, branch)
    if holder is not None:
        raise WorkspaceRefused(
            f"the branch {branch!r} is checked out in {str(holder)!r}; check out another one there"
        )
    return found


def is_protected(git: Git, branch: str) -> bool:
    """Whether the repository's settings protect a branch from being moved."""
    patterns = git.ask("config", "--get-all", PROTECTED) or ""
    return any(fnmatchcase(branch, one.strip()) for one in patterns.splitlines())


def _move(git: Git, source: str, target: str, *, old: str, new: str) -> list[str]:
    """Move the branch, with the working tree that has it; returns what is uncommitted there."""
    holder = holder_of(git, target)
    if holder is None:
        note = f"leadhand: fast-forward to {source}"
        git("update-ref", "-m", note, f"{_HEADS}{target}", new, old)
        return []
    top = git("rev-parse", "--show-toplevel")
    if str(holder) != top:
        raise WorkspaceRefused(
            f"the branch {target!r} is checked out in {str(holder)!r}; merge {source!r} there"
        )
    here = git.at(holder)
    refuse_waiting(here, holder)
    forward(here, new)
    return uncommitted(here)


def _checked_out(git: Git) -> str:
    head = git.ask("symbolic-ref", "--quiet", "HEAD")
    if head is None:
        refuse_rebase(git, git.folder, "and apply the work then")
        raise WorkspaceRefused(
            f"no branch is checked out in {str(git.folder)!r}; check one out there first"
        )
    return head.removeprefix(_HEADS)


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
