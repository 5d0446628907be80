"""Finds the submodules of a worktree that hold nothing of their own."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from workers.workspaces.git import Git

#: The mode of a submodule in a tree or an index.
_GITLINK = "160000"


def settled_submodules(git: Git, path: Path, base: str) -> list[str]:
    """Returns the submodules without local work, which can be removed with a worktree.

    Such a one has the recorded commit checked out, no changes or stash, and no commit that is
    neither on a remote nor recorded in the commit `base`. Submodules within it are alike.
    """
    here = git.at(path)
    found: list[str] = []
    for line in here("ls-files", "--stage", "-z").split("\0"):
        facts, _, name = line.partition("\t")
        if not facts.startswith(_GITLINK) or not (path / name / ".git").exists():
            continue
        if _is_settled(git, path / name, facts.split()[1], _recorded(here, base, name)):
            found.append(name)
    return found


def inner_repository(path: Path, settled: Collection[str] = ()) -> str | None:
    """Returns a repository inside a worktree whose files git would not commit; None without one."""
    for above, names, files in os.walk(path):
        inside = Path(above).relative_to(path)
        if Path(above) != path and ".git" in (*names, *files):
            return str(inside)
        names[:] = [one for one in names if one != ".git" and str(inside / one) not in settled]
    return None


def _is_settled(git: Git, path: Path, commit: str, base: str | None) -> bool:
    here = git.at(path)
    if here.ask("rev-parse", "HEAD") != commit or _is_changed(here):
        return False
    if here.ask("rev-parse", "--verify", "--quiet", "refs/stash") is not None:
        return False
    own = ["HEAD", "--branches", "--not", "--remotes"]
    if base is not None and here.ask("cat-file", "-e", f"{base}^{{commit}}") is not None:
        own.append(base)
    if here.ask("rev-list", "--max-count=1", *own) != "":
        return False
    return inner_repository(path, settled_submodules(git, path, base or "")) is None


def _is_changed(here: Git) -> bool:
    found = here.ask(
        "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none"
    )
    return found != ""


def _recorded(here: Git, base: str, name: str) -> str | None:
    """The commit of a submodule that a commit records."""
    return here.ask("rev-parse", "--verify", "--quiet", f"{base}:{name}") if base else None
