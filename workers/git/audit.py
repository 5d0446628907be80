"""Compares the folders of tasks and sessions with their records and with the store, and repairs.

A folder has a record beside it, an entry of the store, and in a repository one of git. Each folder
is looked at under its lock, so that one that is just made or removed is no finding. What holds work
that is nowhere else is never removed: it is named.

A session is deleted by a person or after its retention, where its folder may not be: the workers of
its place look for such folders. What is not merged or not committed stays, and `leadhand fsck` and
`leadhand doctor` name it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from app import folders
from app.core.folders import MERGE_FOLDER, TREE
from app.core.states import FINAL, SessionStatus
from app.engine import Engine
from app.folders import KnownFolder, StoreFolders
from leadhand.models.views.fleet import Finding, FolderFindings
from tasks.periodic import PeriodicThread
from workers.git import worktrees
from workers.git.cleaning import clean, clean_gone, clean_merges
from workers.git.git import Git, GitFailed, WorkspaceRefused
from workers.git.layout import Record, Shelf, read_record, record_file, remove_record, write_record
from workers.git.worktrees import Place, forget_prepared

#: The most findings that are listed; more are only counted.
SHOWN = 1000
#: The statuses of sessions that do not work in their folder any more.
OVER = frozenset({*FINAL, SessionStatus.FAILED})
_DRAFT = ".draft"
_REPAIR = "leadhand fsck --repair"
log = logging.getLogger(__name__)
#: Seconds between two rounds; a round reads the records of all folders.
EVERY_S = 1800.0


class _Repaired(NamedTuple):
    """What a repair came to: why it was left, or nothing."""

    left: str = ""


@dataclass(frozen=True)
class Access:
    """How an audit reads and changes the store."""

    #: What the store has on record, given the sessions of the records here.
    ask: Callable[[Sequence[str]], StoreFolders]
    #: Records what became of a folder.
    record: Callable[[Mapping[str, JsonValue]], None] = field(default=lambda _: None)
    #: Keeps an ended session from being resumed meanwhile. Raises WorkspaceRefused.
    reserve: Callable[[str], AbstractContextManager[None]] = field(default=lambda _: nullcontext())


class FolderAudit:
    """One audit of all folders beneath a root."""

    def __init__(
        self, root: Path, access: Access, *, repair: bool, cancel: threading.Event | None = None
    ) -> None:
        self._root = root.resolve()
        self._access = access
        self._repair = repair
        self._cancel = cancel or threading.Event()
        self._found: list[Finding] = []

    def run(self, *, orphans_only: bool = False) -> FolderFindings:
        """Compare folders on disk with the store, repair them if so set up; return the findings.

        With `orphans_only` it looks only at folders of deleted sessions.

        An orphan is only one of this store: several installations may share the root.
        """
        paths = list(_folders(self._root))
        records = {path: read_record(path) for path in paths}
        sessions = {one.session for one in records.values() if one is not None and one.session}
        self._known = self._access.ask(sorted(sessions))
        self._stored = {Path(one.view.folder): one for one in self._known.folders}
        if orphans_only:
            chosen = [p for p, one in records.items() if one is not None and self._is_orphan(one)]
        else:
            beneath = [one for one in self._stored if one.is_relative_to(self._root)]
            chosen = sorted({*paths, *beneath})
        for path in chosen:
            self._look(path)
        if not orphans_only:
            for origin in sorted({one.origin for one in records.values() if one is not None}):
                self._look_at_entries(Path(origin))
        left = sum(not one.mended for one in self._found)
        return FolderFindings(
            items=self._found[:SHOWN], found=len(self._found), left=left, folders=len(chosen)
        )

    def _look(self, path: Path) -> None:
        record, known = read_record(path), self._stored.get(path)
        origin = record.origin if record is not None else known.origin if known else ""
        git = Git(Path(origin) if origin else path, self._cancel)
        with _locked(self._root, git, path, record) as held:
            record, exists = read_record(path), path.is_dir()
            if path.name == MERGE_FOLDER:
                self._look_at_merges(held, path)
            elif record is None and exists:
                self._unrecorded(path, known)
            elif record is None and known is not None:
                self._missing(path, known)
            elif record is not None and self._is_ours(record):
                self._recorded(held, path, record, exists=exists)

    def _recorded(self, git: Git, path: Path, record: Record, *, exists: bool) -> None:
        status = self._known.statuses.get(record.session)
        if not exists:
            # Without `ready` it was never made: its session ended first, and nothing is lost.
            if record.ready or status is None:
                self._gone(git, path, record, status)
        elif self._is_orphan(record):
            what = f"{path} is of session {record.session}, which was deleted"
            way = "take out of it what you need, then remove it and the files beside it"
            self._add(
                "worktree_orphan",
                record.session,
                what,
                lambda: self._orphan(git, path, record),
                way,
            )
        elif record.kind == "worktree" and record.ready and not _is_worktree(git, path):
            what = f"{path} is no git worktree any more"
            way = f"git worktree repair {path}"
            self._add("worktree_broken", record.session, what, lambda: _mend(git, path), way)

    def _gone(self, git: Git, path: Path, record: Record, status: str | None) -> None:
        what = f"{path} has a record, but is gone"
        if status is not None and status not in OVER:
            way = f"leadhand stop {record.session}, then: leadhand worktree clean {record.session}"
            self._add(
                "worktree_gone", record.session, f"{what}; its session is {status}", None, way
            )
            return

        def repair() -> _Repaired:
            with self._access.reserve(record.session):
                if _repository(git):
                    clean_gone(git, _place_of(path, record))
                else:
                    remove_record(path)
            self._cleaned(self._stored.get(path))
            return _Repaired()

        self._add("worktree_gone", record.session, what, repair)

    def _missing(self, path: Path, known: KnownFolder) -> None:
        status, session = known.view.status, known.view.session
        what = f"the store has {path} of session {session}, which is not there"
        if status is not None and status not in OVER:
            way = f"leadhand stop {session}, then: leadhand worktree clean {session}"
            self._add("worktree_missing", session, f"{what}; its session is {status}", None, way)
            return

        def repair() -> _Repaired:
            self._cleaned(known)
            return _Repaired()

        self._add("worktree_missing", session, what, repair)

    def _unrecorded(self, path: Path, known: KnownFolder | None) -> None:
        if path.name.endswith(_DRAFT) and record_file(Path(str(path)[: -len(_DRAFT)])).exists():
            return  # a copy that is being made
        what = f"{path} has no record"
        way = "see what it holds; then remove it, or move it elsewhere"

        def repair() -> _Repaired:
            if known is not None:
                write_record(path, _record_of(known, self._known.store))
                return _Repaired()
            return _remove_unrecorded(path)

        session = known.view.session if known is not None else None
        self._add("worktree_unrecorded", session, what, repair, way)

    def _look_at_merges(self, git: Git, path: Path) -> None:
        if any(path.parent.glob("*.json")):
            return

        def repair() -> _Repaired:
            here = git.at(path) if _repository(git.at(path)) else git
            common = here.ask("rev-parse", "--git-common-dir")
            if common is None:
                return _Repaired("its repository is gone")
            clean_merges(git.at(here.folder / common), path.parent)
            return _Repaired()

        self._add("worktree_orphan", None, f"{path} was left when its plan was cleaned", repair)

    def _look_at_entries(self, origin: Path) -> None:
        """Find worktrees that git still lists, but that have neither a folder nor a record."""
        git = Git(origin, self._cancel)
        if not origin.is_dir() or not _repository(git):
            return
        shelf = Shelf.of(self._root, origin / git("rev-parse", "--git-common-dir"))
        with shelf.locked(self._cancel) as lock:
            held = git.holding(lock)
            for one in worktrees.list_worktrees(held):
                path = one.path
                is_gone = not path.exists() and not record_file(path).exists()
                if path.is_relative_to(self._root) and is_gone:
                    self._stale(held, path)

    def _stale(self, git: Git, path: Path) -> None:
        def repair() -> _Repaired:
            worktrees.forget(git, path)
            return _Repaired()

        self._add("worktree_stale", None, f"git lists {path}, which is not there", repair)

    def _add(
        self, kind: str, session: str | None, what: str,
        repair: Callable[[], _Repaired] | None, way: str = "",
    ) -> None:  # fmt: skip
        """Add a finding, and repair it if that was asked for and is possible."""
        mended = False
        if repair is not None and self._repair:
            try:
                left = repair().left
            except (WorkspaceRefused, OSError) as error:
                left = str(error)
            mended, what = not left, f"{what}: {left}" if left else what
        elif repair is not None:
            way = _REPAIR
        finding = Finding(
            kind=kind, session=session or None, what=what, mended=mended,
            way=None if mended else way or _REPAIR,
        )  # fmt: skip
        self._found.append(finding)

    def _cleaned(self, known: KnownFolder | None) -> None:
        """Record in the store that a folder is not there any more."""
        if known is None:
            return
        view = known.view
        whose: dict[str, JsonValue] = {"session": view.session}
        if view.plan:
            whose = {"plan": view.plan, "task": view.task, "run": view.run}
        self._access.record({**whose, "cleaned": True})

    def _orphan(self, git: Git, path: Path, record: Record) -> _Repaired:
        if record.kind == "worktree" and not _repository(git):
            return _Repaired(f"its repository {record.origin} is gone")
        removed = clean(git, _place_of(path, record), force=False)
        if removed.kept:
            return _Repaired(removed.kept.replace("; merge it, or give --force", ""))
        forget_prepared(path)
        if record.kind == "worktree":
            clean_merges(git, path.parent)
        run: dict[str, JsonValue] = {"task": record.task, "run": record.run, "cleaned": True}
        self._access.record({"plan": path.parent.name, **run})  # its plan may be there still
        return _Repaired()

    def _is_ours(self, record: Record) -> bool:
        known = self._known
        return record.session in known.statuses or (
            bool(known.store) and record.store == known.store
        )

    def _is_orphan(self, record: Record) -> bool:
        return self._is_ours(record) and record.session not in self._known.statuses


def _folders(root: Path) -> Iterator[Path]:
    """Every folder of a task or session, and every one that only a record speaks of."""
    for plan in sorted(root.glob("*/*")):
        if plan.name.startswith(".") or plan.parent.name.startswith(".") or not plan.is_dir():
            continue
        names = {one.name for one in plan.iterdir() if one.is_dir()}
        names |= {one.name.removesuffix(".json") for one in plan.glob("*.json")}
        yield from (plan / n for n in sorted(names) if not n.startswith(".") or n == MERGE_FOLDER)


@contextmanager
def _locked(root: Path, git: Git, path: Path, record: Record | None) -> Iterator[Git]:
    """Git with the lock that the makers and removers of a folder hold."""
    shelf, is_copy = Shelf(path.parents[1]), record is not None and record.kind == "copy"
    if not is_copy:
        for folder in (git.folder, path):
            common = (
                git.at(folder).ask("rev-parse", "--git-common-dir") if folder.is_dir() else None
            )
            if common is not None:
                shelf = Shelf.of(root, folder / common)
                break
    with shelf.locked(git.cancel) as lock:
        yield git.holding(lock)


def _repository(git: Git) -> bool:
    return git.folder.is_dir() and git.ask("rev-parse", "--git-dir") is not None


def _place_of(path: Path, record: Record) -> Place:
    return Place(Shelf(path.parents[1]), path.parent.name, record.task, record.run)


def _is_worktree(git: Git, path: Path) -> bool:
    top = git.at(path).ask("rev-parse", "--show-toplevel")
    return top is not None and Path(top).resolve() == path.resolve()


def _mend(git: Git, path: Path) -> _Repaired:
    why = ""
    # The first mends what git has on record of the worktree, the second the worktree itself.
    for named in ((str(path),), ()):
        try:
            git("worktree", "repair", *named)
        except GitFailed as error:
            why = str(error)
        if _is_worktree(git, path):
            return _Repaired()
    return _Repaired(why or "git could not repair it")


def _remove_unrecorded(path: Path) -> _Repaired:
    """Remove a folder that nothing speaks of, if all that it holds is elsewhere."""
    if not any(path.iterdir()):
        path.rmdir()
        return _Repaired()
    git = Git(path)
    if not _is_worktree(git, path):
        return _Repaired("it is no git worktree")
    if worktrees.has_changes(git) or not worktrees.is_on_a_ref(git, path):
        return _Repaired("it has changes or commits that are nowhere else")
    git.at(path / git("rev-parse", "--git-common-dir"))("worktree", "remove", str(path))
    return _Repaired()


def _record_of(known: KnownFolder, store: str) -> Record:
    """The record of a folder that the store knows."""
    view = known.view
    status = view.status
    return Record(
        kind="worktree" if view.branch else "copy", origin=known.origin, run=view.run,
        task=view.task or TREE, branch=view.branch or "",
        base=view.base or "", target=known.target, ready=True, session=view.session, store=store,
        over=status is None or status in OVER,
    )  # fmt: skip


class OrphanCleanup(PeriodicThread):
    """Looks for folders of deleted sessions until it is stopped."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("cleanup of worktrees", EVERY_S, self.remove_orphans)
        self._engine = engine

    def remove_orphans(self) -> int:
        """Remove folders of deleted sessions that have no unsaved work; return their number."""
        engine = self._engine
        engine.guard.require()
        access = Access(
            partial(folders.read_statuses, engine), partial(folders.record_of_task, engine)
        )
        audit = FolderAudit(engine.settings.worktrees_root, access, repair=True)
        found = audit.run(orphans_only=True)
        for one in found.items:
            log.info("folder of a deleted session", extra={"what": one.what, "removed": one.mended})
        return found.found - found.left
