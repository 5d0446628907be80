"""Deletes ended sessions, and reports the deletion to a waiting parent."""

from __future__ import annotations

from app.domain.control import Seen
from app.operations.child_reports import ChildReports
from app.operations.control import SessionControl
from app.operations.folders.known import FolderIndex
from app.operations.registry import Registry
from leadhand.errors import StoreFull
from leadhand.models.views.session import SessionView


class Deletion:
    """Deletes sessions without losing undelivered reports to their parents."""

    def __init__(
        self,
        registry: Registry,
        control: SessionControl,
        reports: ChildReports,
        folders: FolderIndex,
    ) -> None:
        self._registry = registry
        self._control = control
        self._reports = reports
        self._folders = folders

    def delete(
        self,
        session: str,
        *,
        force: bool = False,
        expired: bool = False,
        seen: Seen | None = None,
    ) -> SessionView | None:
        """Delete an ended session, or any with `force`, after reporting its end to its parent.

        Returns the view of a session that has yet to end, or None if it is deleted. Raises
        ControlRefused, unless its retention is over, if one of its folders may have work. If the
        process dies in between, the next check of the parked parent step notices it. While Redis is
        full, a session is deleted only if its end has been reported.
        """
        ref = self._registry.ref(session)
        if not (force or expired):
            self._folders.check_deletion(session)
        parent = self._reports.parent_of(ref)
        if parent:
            try:
                self._reports.deliver(ref)
            except StoreFull:
                if self._reports.is_undelivered(ref, parent):
                    raise  # the report would be lost with the session
        view = self._control.delete(session, force=force, seen=seen)
        if view is None and parent:
            self._reports.report_deletion(ref, parent)
        return view
