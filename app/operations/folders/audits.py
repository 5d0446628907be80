"""Starts the audit of the folders at each place: only workers of a place see them."""

from __future__ import annotations

from app.compiler.workspaces import audit_program
from app.operations.submit import About, Submissions
from app.queries.fleet import Fleet
from app.settings import Settings
from leadhand.models.views.audit import FolderAuditStarted, FolderAuditView

#: The name, in the folder of worktrees, whose lock an audit holds: one at a time in a place.
_AUDIT = ".audit"


class FolderAudits:
    """Starts a session per place that compares its folders with the store."""

    def __init__(self, settings: Settings, fleet: Fleet, submit: Submissions) -> None:
        self._settings = settings
        self._fleet = fleet
        self._submit = submit

    def start(self, *, repair: bool) -> FolderAuditView:
        """Start one session per place (worker host) that compares its folders with the store.

        With `repair` it also repairs what differs.
        """
        places = sorted({worker.place for worker in self._fleet.inventories()})
        return FolderAuditView(
            items=[
                FolderAuditStarted(place=place, session=self._start(place, repair=repair))
                for place in places
            ]
        )

    def _start(self, place: str, *, repair: bool) -> str:
        program = audit_program(place, repair=repair)
        folder = str(self._settings.worktrees_root.resolve() / _AUDIT)
        about = About(
            kind="workflow",
            name=program.name,
            label=f"Audit the folders at {place}",
            cwd=folder,
            folder=folder,
            place=place,
        )
        return self._submit.program(program, about).session
