"""Fast-forwards a branch of the user to another one, or says in one sentence why not."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from workers.workspaces.git import Git, WorkspaceRefused
from workers.workspaces.repository import is_ancestor, refuse_rebase, tip_of
from workers.workspaces.user_tree import forward, refuse_waiting, uncommitted
from workers.workspaces.worktrees import holder_of, tip

_HEADS = "refs/heads/"
#: The setting of a repository that names branches which Leadhand never moves; may be repeated.
PROTECTED = "leadhand.protected"


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
