"""Reads and writes single facts of a session: its exit reason, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from leadhand.client.client import Client, borrowed
from leadhand.models.text import plain, reason_text
from leadhand.models.verdicts import Reason
from leadhand.models.views.session import SessionView

__all__ = ["Poll", "load_exit_reason", "poll", "save_exit_reason"]

#: The most characters of an activity.
_MOST = 200


@dataclass(frozen=True)
class Poll:
    """How far a session is, without its result."""

    id: str
    status: str
    #: Seconds from its creation to now, or to its end.
    elapsed: float
    #: Steps carried out so far: each called an agent, a command or a tool once.
    tool_calls: int
    #: The running steps, what the session waits for, or why it ended.
    activity: str


def save_exit_reason(session: str, reason: str, *, client: Client | None = None) -> None:
    """Ends a session at once as exited, with this reason, as `leadhand exit` does inside a body.

    Raises ValueError for an empty reason, SessionUnknown, and ControlRefused for a session that
    has ended.
    """
    if not reason.strip():
        raise ValueError("reason is empty; write why this path will not work")
    with borrowed(client) as server:
        server.exit(session, reason)


def load_exit_reason(session: str, *, client: Client | None = None) -> str | None:
    """Returns the reason with which a session was exited; None if it was not.

    Where a child session or a body called exit, this is the reason that it gave.
    """
    with borrowed(client) as server:
        reason = server.session(session).reason
    if reason is None or reason.code != "exit":
        return None
    return _innermost(reason).text


def poll(session: str, *, client: Client | None = None) -> Poll:
    """Returns a session's status and activity, without its result. Raises SessionUnknown."""
    with borrowed(client) as server:
        view = server.session(session)
        waits = not view.ended and not view.progress.running
        explained = server.explain(session).text if waits else ""
    return Poll(
        id=view.id,
        status=view.status,
        elapsed=_elapsed_s(view),
        tool_calls=view.counters.steps,
        activity=plain(_activity(view) or explained, most=_MOST),
    )


def _innermost(reason: Reason) -> Reason:
    """The lowest exit of a chain."""
    beneath = reason.beneath
    return _innermost(beneath) if beneath is not None and beneath.code == "exit" else reason


def _activity(view: SessionView) -> str:
    if view.progress.running:
        return ", ".join(f"{step.action} {step.address}" for step in view.progress.running)
    if view.ended:
        return reason_text(view.reason.model_dump()) if view.reason is not None else view.status
    return ""


def _elapsed_s(view: SessionView) -> float:
    began = datetime.fromisoformat(view.created_at)
    ended = datetime.fromisoformat(view.ended_at) if view.ended_at else datetime.now(UTC)
    return max(0.0, round((ended - began).total_seconds(), 1))
