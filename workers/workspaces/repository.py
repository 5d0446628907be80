"""Finds the repository of a folder, and says why worktrees of it cannot be made. Reads only."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from leadhand.models.git_tracking import repository_top
from workers.workspaces.git import Git, GitFailed, GitMissing, WorkspaceRefused

OTHERWISE = "or give `workspace: copy` or `workspace: shared`"


class Repository(NamedTuple):
    """A repository, as the worktrees of tasks start from it."""

    #: The working tree that the folder is in.
    top: Path
    #: The directory that all its worktrees share, with links resolved.
    common: Path
    #: The folder within the working tree; empty for its top.
    prefix: str
    #: The branch that is checked out, or a commit: tasks start from its tip.
    target: str


def find_repository(git: Git, otherwise: str = OTHERWISE) -> Repository | None:
    """Returns the repository of a folder; None if git tracks nothing of it.

    `otherwise` says in an error what to do instead of mending the repository.

    Raises WorkspaceRefused for one that worktrees cannot be made of.
    """
    folder = git.folder
    try:
        kind = git("rev-parse", "--is-bare-repository", "--is-inside-work-tree")
    except GitMissing:
        if repository_top(folder) is None:
            return None
        raise
    except GitFailed as error:
        if "not a git repository" in error.stderr and not (folder / ".git").exists():
            return None
        raise WorkspaceRefused(_why_not(folder, error, otherwise)) from None
    if kind.split() != ["false", "true"]:
        what = "is a bare repository" if kind.startswith("true") else "is inside a .git folder"
        raise WorkspaceRefused(
            f"{str(folder)!r} {what} and has no working tree; clone it and work there, {otherwise}"
        )
    prefix = git("rev-parse", "--show-prefix").rstrip("/")
    if prefix and not git("ls-files", "--", ".")[:1]:
        return None
    top = Path(git("rev-parse", "--show-toplevel"))
    common = (folder / git("rev-parse", "--git-common-dir")).resolve()
    refuse_rebase(git, top, otherwise)
    return Repository(top, common, prefix, _target(git, top, otherwise))


def _target(git: Git, top: Path, otherwise: str) -> str:
    commit = git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if commit is None:
        raise WorkspaceRefused(
            f"the repository {str(top)!r} has no commit to start from; commit something first, "
            f"{otherwise}"
        )
    return git.ask("symbolic-ref", "--quiet", "HEAD") or commit


def refuse_rebase(git: Git, top: Path, otherwise: str) -> None:
    """Raises WorkspaceRefused while a rebase is in progress in a working tree."""
    for name in ("rebase-merge", "rebase-apply"):
        if (git.folder / git("rev-parse", "--git-path", name)).exists():
            raise WorkspaceRefused(
                f"a rebase is in progress in {str(top)!r}; finish it (git rebase --continue) or "
                f"end it (git rebase --abort) first, {otherwise}"
            )


def await_locks(git: Git) -> None:
    """Waits until no other git has a working tree or its branch locked. Raises GitLocked.

    Git looks at some of these locks only after it has changed files of the tree.
    """
    branch = git.ask("symbolic-ref", "--quiet", "HEAD")
    names = ["index", "HEAD", "ORIG_HEAD", *([branch] if branch is not None else [])]
    options = [part for name in names for part in ("--git-path", f"{name}.lock")]
    git.await_locks(git.folder / one for one in git("rev-parse", *options).splitlines())


def _why_not(folder: Path, error: GitFailed, otherwise: str) -> str:
    if "dubious ownership" in error.stderr:
        return (
            f"the repository of {str(folder)!r} belongs to another user, and git does not trust it;"
            f" run `git config --global --add safe.directory` with its path, {otherwise}"
        )
    return f"the repository of {str(folder)!r} cannot be used: {error}; repair it, {otherwise}"


def tip_of(git: Git, target: str) -> str:
    """Returns the commit that a branch or tag points to. Raises WorkspaceRefused if none."""
    found = git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{target}^{{commit}}")
    if found is None:
        raise WorkspaceRefused(f"{target.removeprefix('refs/heads/')!r} is gone; create it again")
    return found


def count_uncommitted(git: Git) -> int:
    """Counts the uncommitted changes in the working tree, with untracked files and folders."""
    found = git.ask("status", "--porcelain", "--untracked-files=normal")
    return len(found.splitlines()) if found else 0


def is_ancestor(git: Git, one: str, other: str) -> bool:
    """Whether the commit `one` is in the history of the commit `other`, or the same."""
    return git.ask("merge-base", "--is-ancestor", one, other) is not None
