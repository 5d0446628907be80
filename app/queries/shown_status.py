"""The status of a session as readers see it."""

from __future__ import annotations

from collections.abc import Mapping

from app.domain.ids import SessionRef
from app.domain.states import SessionStatus
from app.store.store import Store


def shown_status(store: Store, ref: SessionRef, fields: Mapping[str, str]) -> str:
    """Returns the stored status, or `waiting` for an active session with only parked steps."""
    parked = store.count_members(ref, "parked") if fields["status"] == SessionStatus.ACTIVE else 0
    return status_of(fields, parked, store.count_members(ref, "live") if parked else 0)


def status_of(fields: Mapping[str, str], parked: int, live: int) -> str:
    """Returns a session's status, or `waiting` if it is active and all its live steps are parked.

    >>> status_of({"status": "active"}, 2, 2), status_of({"status": "stopped"}, 2, 2)
    ('waiting', 'stopped')
    """
    status = fields["status"]
    return "waiting" if status == SessionStatus.ACTIVE and parked and parked == live else status
