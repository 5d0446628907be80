"""Reserves the folder of an ended session while a step changes or removes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from app.domain.states import ENDED, SessionStatus
from workers.task.task import BodyTask
from workers.workspaces.git import Cancelled, WorkspaceRefused


def removable(*, force: bool) -> frozenset[SessionStatus]:
    """Returns the session statuses that permit removing its folder; stopped only with `force`."""
    return ENDED if force else ENDED - {SessionStatus.STOPPED}


@contextmanager
def reserved(task: BodyTask, session: str, statuses: Collection[SessionStatus]) -> Iterator[None]:
    """Prevents a session from being resumed inside the block. Raises WorkspaceRefused.

    Hold the lock of the folder first: only its holder reserves.
    """
    status = task.reserve(session, statuses, task.timeout_s)
    if status is None:
        raise Cancelled
    if status:
        raise WorkspaceRefused(f"its session is {status}")
    try:
        yield
    finally:
        task.release(session)
