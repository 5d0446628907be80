"""Commits what ended sessions left in their worktrees, as `leadhand: unfinished`.

A failed session starts no step any more, so its worker looks for its worktree from time to time.
Several installations of one user may share the folder: only sessions that this store has are
looked at, and each worktree once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from app.domain.states import ENDED, SessionStatus
from app.engine import Engine
from tasks.periodic import PeriodicThread
from workers.workspaces import worktrees
from workers.workspaces.git import Git, WorkspaceRefused
from workers.workspaces.in_progress import find_in_progress
from workers.workspaces.layout import (
    Record,
    Shelf,
    open_worktrees,
    read_record,
    write_record,
)

log = logging.getLogger(__name__)

#: Seconds between two rounds.
EVERY_S = 30.0
#: Seconds that a session is not resumed if its worker dies while it commits.
_HOLD_S = 300.0
#: No session in one of these works in its worktree, unless it is resumed.
_OVER = ENDED - {SessionStatus.STOPPED}


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
            record, folders = read_record(path), self._engine.own_folders
            if record is None or record.over:  # it was removed or rescued meanwhile
                return False
            if folders.reserve(record.session, _OVER, _HOLD_S):
                return False
            try:
                if path.is_dir():
                    _keep(Git(path).holding(lock), path, record)
                write_record(path, record.model_copy(update={"over": True}))
            finally:
                folders.release(record.session)
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
