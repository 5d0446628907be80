"""What a session, a step and a turn can be, and what may follow what."""

from __future__ import annotations

from enum import StrEnum


class SessionStatus(StrEnum):
    #: Something is ready, running or parked.
    ACTIVE = "active"
    #: Asked to stop: nothing new starts, what runs is being handed back.
    STOPPING = "stopping"
    #: Stopped where it was; resume goes on.
    STOPPED = "stopped"
    #: Somebody inside called exit; what runs is being ended.
    EXITING = "exiting"
    #: Ended by intent from the inside, with its reason.
    EXITED = "exited"
    #: Asked to abort; what runs is being killed.
    ABORTING = "aborting"
    #: Ended by force from the outside.
    ABORTED = "aborted"
    #: The work was accepted, or done.
    COMPLETED = "completed"
    #: Ended without acceptance; the reason says why, resume tries again.
    FAILED = "failed"


class StepState(StrEnum):
    #: Waits for what it needs; nothing is stored of it.
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
    #: Passed over because its condition did not hold, or what it is given was not said.
    SKIPPED = "skipped"


class TurnState(StrEnum):
    #: Its steps may start.
    OPEN = "open"
    #: Ends early: nothing below it starts, what runs is told to end.
    CLOSING = "closing"
    #: Over; what comes from below is recorded and releases nothing.
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
    _T.READY: (_T.RUNNING, _T.CANCELLED),
    _T.RUNNING: (
        _T.READY,
        _T.PARKED,
        _T.SUCCEEDED,
        _T.FAILED,
        _T.CANCELLED,
        _T.SKIPPED,
    ),
    _T.PARKED: (_T.SUCCEEDED, _T.FAILED, _T.CANCELLED),
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

#: Nothing runs in these; their sessions can be deleted.
ENDED = frozenset({_S.STOPPED, _S.EXITED, _S.ABORTED, _S.COMPLETED, _S.FAILED})
#: Nothing ever follows these.
FINAL = frozenset(status for status, following in SESSION_NEXT.items() if not following)
