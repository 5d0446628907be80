"""The status of a session as readers see it."""

from __future__ import annotations

from collections.abc import Mapping

from app.domain.ids import SessionRef
from app.domain.states import SessionStatus
from app.store.store import Store


def shown_status(store: Store, ref: SessionRef, fields: Mapping[str, str]) -> str:
    """Returns the stored status, or `waiting` for an active session with only parked steps."""
    status = fields["status"]
    parked = store.size(ref, "parked") if status == SessionStatus.ACTIVE else 0
    return "waiting" if parked and parked == store.size(ref, "live") else status
