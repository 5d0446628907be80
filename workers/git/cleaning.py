"""Removes folders of tasks that hold nothing that is nowhere else, and rescues unfinished work.

With force the folder of a worktree is removed too if it has changes or commits of its own: the
changes are committed to its branch first, and the branch stays.

A failed session starts no step any more, so its worker looks for its worktree from time to time.
Several installations of one user may share the folder: only sessions that this store has are
looked at, and each worktree once.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from app import folders
from app.core.folders import MERGE_FOLDER
from app.core.states import ENDED, SessionStatus
from app.engine import Engine
from leadhand.models.text import list_first
from tasks.periodic import PeriodicThread
from workers.git import worktrees
from workers.git.copies import digests_file, is_unchanged
from workers.git.git import Git, WorkspaceRefused
from workers.git.layout import (
    Record,
    Shelf,
    open_worktrees,
    read_record,
    remove_record,
    write_record,
)
from workers.git.merging import merged_tip
from workers.git.repository import find_in_progress
from workers.git.worktrees import Place
from workers.processes.nested_repositories import checked_out_in

_FOREIGN = "its record is gone, which says what it holds; look at it and remove it yourself"
#: Files that a sentence names.
_SHOWN = 5
log = logging.getLogger(__name__)
#: Seconds between two rounds.
EVERY_S = 30.0
#: Seconds that a session is not resumed if its worker dies while it commits.
_HOLD_S = 300.0
#: No session in one of these works in its worktree, unless it is resumed.
_OVER = ENDED - {SessionStatus.STOPPED}


class Removed(NamedTuple):
    """What became of a task's folder."""

    #: Why it was left; empty if it was removed.
    kept: str = ""
    #: Whether its branch stays, because the target has not all of its commits.
    keeps_branch: bool = False


def clean(git: Git, place: Place, *, force: bool) -> Removed:
    """Remove a task's folder; without `force` keep unsaved work and return why. Raises Cancelled.

    The caller holds the lock of the repository.
    """
    record = read_record(place.path)
    if record is None:
        return Removed(kept=_FOREIGN if place.path.exists() else "")
    try:
        if record.kind == "copy":
            return _clean_copy(place.path, record, force=force)
        return _clean_worktree(git, place, record, force=force)
    except (WorkspaceRefused, OSError) as error:
        return Removed(kept=str(error))


def clean_gone(git: Git, place: Place) -> None:
    """Delete the record of a folder that no longer exists, and its branch if that is merged."""
    record = read_record(place.path)
    if record is not None and record.kind == "worktree":
        worktrees.forget(git, place.path)
        tip = worktrees.tip(git, record.branch)
        is_free = tip is not None and not worktrees.holder_of(git, record.branch)
        if is_free and _is_merged(git, place, record):
            git("update-ref", "-d", f"refs/heads/{record.branch}", str(tip))
    digests_file(place.path).unlink(missing_ok=True)
    remove_record(place.path)


def clean_merges(git: Git, folder: Path) -> None:
    """Remove the worktree that a plan merges in, once none of its tasks has a folder."""
    path = folder / MERGE_FOLDER
    if path.exists() and not any(folder.glob("*.json")):
        git("worktree", "remove", "--force", "--force", str(path))


def _clean_copy(path: Path, record: Record, *, force: bool) -> Removed:
    if path.exists():
        if (
            record.ready
            and not force
            and not is_unchanged(path, path / record.prefix, Path(record.origin))
        ):
            return Removed(kept="it has files that differ from the original; --force removes them")
        shutil.rmtree(path)
    digests_file(path).unlink(missing_ok=True)
    remove_record(path)
    return Removed()


def _clean_worktree(git: Git, place: Place, record: Record, *, force: bool) -> Removed:
    path, branch, owns_branch = place.path, record.branch, True
    submodules: list[str] = []
    if path.exists() and record.ready:
        _end_in_progress(git, path, branch, force=force)
        owns_branch = not worktrees.is_detached(git, path)
        submodules = _submodules(git, path, record.base)
        _secure(git, path, record, branch if owns_branch else "", force=force)
    is_merged = _is_merged(git, place, record)
    if owns_branch and not is_merged and not force:
        target = record.target.removeprefix("refs/heads/")
        why = f"{branch!r} has commits that {target!r} has not; merge it, or give --force"
        return Removed(kept=why)
    if path.exists() and not record.ready:
        shutil.rmtree(path)
    worktrees.remove(git, path, force=bool(submodules) or _has_by_products(git, path, record))
    tip = worktrees.tip(git, branch)
    deletes = is_merged and tip is not None and not worktrees.holder_of(git, branch)
    if deletes:
        git("update-ref", "-d", f"refs/heads/{branch}", str(tip))
    remove_record(path)
    return Removed(keeps_branch=tip is not None and not deletes)


def _end_in_progress(git: Git, path: Path, branch: str, *, force: bool) -> None:
    found = find_in_progress(git, path)
    if found is not None and not force:
        name = worktrees.unfinished_branch(branch)
        raise WorkspaceRefused(
            f"a {found.what} is in progress in it; --force ends that and commits what it left to"
            f" {name!r} first"
        )
    worktrees.end_in_progress(git, path, branch)


def _submodules(git: Git, path: Path, base: str) -> list[str]:
    """The submodules that can be removed with a worktree. Raises WorkspaceRefused for others."""
    settled = settled_submodules(git, path, base)
    inner = inner_repository(path, settled)
    if inner is not None:
        raise WorkspaceRefused(
            f"it holds a repository of its own in {inner!r}; move that away first, or push its"
            " commits if it is a submodule"
        )
    return settled


def _secure(git: Git, path: Path, record: Record, branch: str, *, force: bool) -> None:
    """See that a branch has all that is in a worktree. Raises WorkspaceRefused.

    `branch` is empty for the worktree of a run whose branch a later one took over.
    """
    if not branch and not worktrees.is_on_a_ref(git, path):
        raise WorkspaceRefused("it has commits that are on no branch; create one for them first")
    if not _changes(git, path, record):
        return
    if not branch:
        raise WorkspaceRefused("it has changes and is on no branch; commit them to one first")
    if not force:
        why = f"it has uncommitted changes; --force commits them to {branch!r} first"
        raise WorkspaceRefused(why)
    large = worktrees.large_files(git.at(path), record.by_products)
    if large:
        what = f"it holds files that are too large to be committed: {list_first(large, _SHOWN)}"
        raise WorkspaceRefused(f"{what}; move them elsewhere first")
    if record.accepted:
        worktrees.keep_beside(git, path, branch)
    else:
        worktrees.keep_unfinished(git, path, branch)


def _changes(git: Git, path: Path, record: Record) -> bool:
    """Whether a worktree has uncommitted changes other than by-products."""
    here, options = git.at(path), ("--directory", "--no-empty-directory")
    if here("status", "--porcelain", "--untracked-files=no"):
        return True
    return bool(worktrees.others(here, record.by_products, *options))


def _has_by_products(git: Git, path: Path, record: Record) -> bool:
    """Whether by-products are all that keeps git from removing a worktree."""
    if not path.exists():
        return False
    return worktrees.has_changes(git.at(path)) and not _changes(git, path, record)


def _is_merged(git: Git, place: Place, record: Record) -> bool:
    """Whether the target, as it is now, has all commits of the branch."""
    tip = worktrees.tip(git, record.branch)
    if tip is None or tip == record.base:
        return True
    if tip == merged_tip(git, place.plan, place.task):
        return True
    return git.ask("merge-base", "--is-ancestor", tip, record.target) is not None


def settled_submodules(git: Git, path: Path, base: str) -> list[str]:
    """Returns the submodules without local work, which can be removed with a worktree.

    Such a one has the recorded commit checked out, no changes or stash, and no commit that is
    neither on a remote nor recorded in the commit `base`. Submodules within it are alike.
    """
    here = git.at(path)
    return [
        name
        for name, commit in checked_out_in(here, path)
        if _is_settled(git, path / name, commit, _recorded(here, base, name))
    ]


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


class WorktreeRescue(PeriodicThread):
    """Looks for worktrees of ended sessions until it is stopped."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("rescue of worktrees", EVERY_S, self.rescue)
        self._engine = engine

    def rescue(self) -> list[str]:
        """Commit unsaved work in worktrees of ended sessions; return the folders so committed."""
        root = self._engine.settings.worktrees_root
        found = dict(_open_worktrees(root))
        known = self._engine.store.fields_of([record.session for record in found.values()])
        over = [
            path
            for path, record in found.items()
            if record.session in known and known[record.session][1]["status"] in _OVER
        ]
        return [str(path) for path in over if self._try(path)]

    def _try(self, path: Path) -> bool:
        try:
            return self._rescue(path)
        except (WorkspaceRefused, OSError) as error:
            log.info("worktree left as it is", extra={"folder": str(path), "why": str(error)})
            return False

    def _rescue(self, path: Path) -> bool:
        """Commit what is left, unless the session was resumed meanwhile; whether that was done."""
        with _shelf_of(path).locked(threading.Event()) as lock:
            record = read_record(path)
            if record is None or record.over:  # it was removed or rescued meanwhile
                return False
            if folders.reserve(self._engine, record.session, _OVER, _HOLD_S):
                return False
            try:
                if path.is_dir():
                    _keep(Git(path).holding(lock), path, record)
                write_record(path, record.model_copy(update={"over": True}))
            finally:
                folders.release(self._engine, record.session)
        return True


def _keep(git: Git, path: Path, record: Record) -> None:
    """Commit what is left in a worktree; a rebase or bisect in its middle is ended first."""
    found = find_in_progress(git, path)
    if found is not None and found.branch == record.branch:
        worktrees.end_in_progress(git, path, record.branch)
        if worktrees.holder_of(git, record.branch) is None:
            git("checkout", "--quiet", record.branch)
    if not worktrees.is_detached(git, path):
        worktrees.keep_unfinished(git, path, record.branch)


def _open_worktrees(root: Path) -> Iterator[tuple[Path, Record]]:
    """The worktrees whose sessions had not ended when a worker looked last."""
    for path in open_worktrees(root):
        record = read_record(path)
        if record is not None and record.ready and not record.over:
            yield path, record


def _shelf_of(path: Path) -> Shelf:
    """The shelf of the worktree's repository, whose lock calls of git hold.

    A folder that a session has to itself is on the shelf of the folder that it was made from.
    """
    common = Git(path).ask("rev-parse", "--git-common-dir") if path.is_dir() else None
    if common is None:
        return Shelf(path.parent.parent)
    return Shelf.of(path.parents[2], path / common)
