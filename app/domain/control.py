"""The control verbs and their optimistic-locking token."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import JsonValue

from app.domain.states import SessionStatus

Control = Literal["stop", "resume", "exit", "abort"]

#: Steps of sessions in these states may still run.
AT_WORK = (
    SessionStatus.ACTIVE,
    SessionStatus.STOPPING,
    SessionStatus.EXITING,
    SessionStatus.ABORTING,
)

#: The reason text of a child that was stopped with its parent, and not by a user.
PARENT_DID = "its parent session did"


class Seen(NamedTuple):
    """A session's status and time of last change, as a caller read them: an optimistic lock."""

    status: str
    updated_ms: int

    def stored_fields(self) -> dict[str, JsonValue]:
        """Return the status and time of last change as the session's Redis hash stores them."""
        status = SessionStatus.ACTIVE.value if self.status == "waiting" else self.status
        return {"status": status, "updated": str(self.updated_ms)}
