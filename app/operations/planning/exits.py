"""Refuses an exit that a body asks for in a phase in which its session must not end."""

from __future__ import annotations

from app.domain.ids import SessionRef
from app.domain.states import SessionStatus
from app.errors import ControlRefused
from app.queries.phases import Phases
from app.store.store import Store


def check_exit(store: Store, ref: SessionRef) -> None:
    """Raises ControlRefused if an active session is in a phase in which it must not exit."""
    fields = store.fields(ref)
    if fields.get("status") != SessionStatus.ACTIVE:
        return  # the transition says what is wrong
    phase = Phases(store).view(ref, fields)
    if phase is not None and phase.may_end == "block":
        raise ControlRefused(ref.id, "exit", fields["status"], phase.text)
