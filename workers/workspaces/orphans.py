"""Removes the folders of deleted sessions once all that they hold is elsewhere.

A session is deleted by a person or after its retention, where its folder may not be: the workers of
its place look for such folders. What is not merged or not committed stays, and `leadhand fsck` and
`leadhand doctor` name it.
"""

from __future__ import annotations

import logging

from app.engine import Engine
from tasks.periodic import PeriodicThread
from workers.workspaces.audit import Access, FolderAudit

log = logging.getLogger(__name__)

#: Seconds between two rounds; a round reads the records of all folders.
EVERY_S = 1800.0


class OrphanCleanup(PeriodicThread):
    """Looks for folders of deleted sessions until it is stopped."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("cleanup of worktrees", EVERY_S, self.remove_orphans)
        self._engine = engine

    def remove_orphans(self) -> int:
        """Remove folders of deleted sessions that have no unsaved work; return their number."""
        engine = self._engine
        engine.guard.require()
        access = Access(engine.folder_index.of_sessions, engine.worktrees.record)
        audit = FolderAudit(engine.settings.worktrees_root, access, repair=True)
        found = audit.run(orphans_only=True)
        for one in found.items:
            log.info("folder of a deleted session", extra={"what": one.what, "removed": one.mended})
        return found.found - found.left
