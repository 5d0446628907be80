"""States of sessions, steps and turns, their legal transitions, and the verbs that control them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import JsonValue

Control = Literal["stop", "resume", "exit", "abort"]


class SessionStatus(StrEnum):
    #: Something is ready, running or parked.
    ACTIVE = "active"
    #: Asked to stop: no step starts, running ones are being released.
    STOPPING = "stopping"
    #: Stopped; resume continues where it was.
    STOPPED = "stopped"
    #: A step called exit; running steps are being ended.
    EXITING = "exiting"
    #: Ended by an exit call, with its reason.
    EXITED = "exited"
    #: Asked to abort; running steps are being killed.
    ABORTING = "aborting"
    #: Ended by an abort.
    ABORTED = "aborted"
    #: The work was accepted, or done.
    COMPLETED = "completed"
    #: Ended without acceptance; the reason says why, resume tries again.
    FAILED = "failed"


class StepState(StrEnum):
    #: Waits for its needs; nothing is stored.
    PENDING = "pending"
    #: May be claimed by a worker.
    READY = "ready"
    #: Held by one worker under a lease.
    RUNNING = "running"
    #: Waits for a person, a time or a child session; no worker is held.
    PARKED = "parked"
    #: Done, with an outcome.
    SUCCEEDED = "succeeded"
    #: Done, without success; the reason says why.
    FAILED = "failed"
    #: Ended because the turn around it did.
    CANCELLED = "cancelled"
    #: Skipped by a user, or because its condition or the verdict that it depends on was not given.
    SKIPPED = "skipped"


class TurnState(StrEnum):
    #: Its steps may start.
    OPEN = "open"
    #: Ends early: nothing below it starts, running steps get cancelled.
    CLOSING = "closing"
    #: Ended; late outcomes from below are recorded and release nothing.
    CLOSED = "closed"


_S = SessionStatus
SESSION_NEXT: dict[SessionStatus, tuple[SessionStatus, ...]] = {
    _S.ACTIVE: (_S.COMPLETED, _S.FAILED, _S.STOPPING, _S.EXITING, _S.ABORTING),
    _S.STOPPING: (_S.STOPPED, _S.COMPLETED, _S.FAILED, _S.EXITING, _S.ABORTING),
    _S.STOPPED: (_S.ACTIVE, _S.COMPLETED, _S.FAILED, _S.ABORTING),
    _S.EXITING: (_S.EXITED, _S.ABORTING),
    _S.FAILED: (_S.ACTIVE, _S.ABORTING),
    _S.ABORTING: (_S.ABORTED,),
    _S.COMPLETED: (),
    _S.EXITED: (),
    _S.ABORTED: (),
}

_T = StepState
STEP_NEXT: dict[StepState, tuple[StepState, ...]] = {
    _T.PENDING: (_T.READY, _T.SKIPPED),
    _T.READY: (_T.RUNNING, _T.CANCELLED, _T.SKIPPED),
    _T.RUNNING: (
        _T.READY,
        _T.PARKED,
        _T.SUCCEEDED,
        _T.FAILED,
        _T.CANCELLED,
        _T.SKIPPED,
    ),
    _T.PARKED: (_T.SUCCEEDED, _T.FAILED, _T.CANCELLED, _T.SKIPPED),
    _T.SUCCEEDED: (),
    _T.FAILED: (),
    _T.CANCELLED: (),
    _T.SKIPPED: (),
}

TURN_NEXT: dict[TurnState, tuple[TurnState, ...]] = {
    TurnState.OPEN: (TurnState.CLOSING, TurnState.CLOSED),
    TurnState.CLOSING: (TurnState.CLOSED,),
    TurnState.CLOSED: (),
}

#: No step runs in these states; the session can be deleted.
ENDED = frozenset({_S.STOPPED, _S.EXITED, _S.ABORTED, _S.COMPLETED, _S.FAILED})
#: States in which a session's work is as its checkers accepted it.
ACCEPTED = frozenset({_S.COMPLETED, _S.EXITED})
#: States that nothing follows.
FINAL = frozenset(status for status, following in SESSION_NEXT.items() if not following)


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
