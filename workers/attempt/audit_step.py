"""Carries out the step that compares the folders at a place with the store."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from app.domain.outcomes import Outcome
from app.operations.folders.known import StoreFolders
from workers.attempt.reservation import removable, reserved
from workers.task.task import BodyTask
from workers.workspaces.audit import Access, FolderAudit
from workers.workspaces.git import Cancelled, WorkspaceRefused


def carry_out_audit(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Run the step that audits the folders at this place; its text is the findings as JSON.

    Raises WorkspaceRefused, Cancelled.
    """
    if task.worktrees is None:
        raise WorkspaceRefused("this worker has no folder for worktrees")

    def ask(sessions: Sequence[str]) -> StoreFolders:
        found = task.stored_folders(sessions)
        if found is None:
            raise Cancelled
        return found

    access = Access(
        ask, task.on_workspace, lambda session: reserved(task, session, removable(force=False))
    )
    repair = bool(task.inputs.get("repair"))
    found = FolderAudit(task.worktrees, access, repair=repair, cancel=cancel).run()
    return Outcome(word="succeeded", verdict="accept", text=found.model_dump_json())
