"""Computes the pauses of a client that polls a session until it ends."""

from __future__ import annotations

from leadhand.errors import WaitTimedOut

_SOONEST_LOOK_S = 0.05
_LATEST_LOOK_S = 1.0


def next_look_s(session: str, status: str, waited_s: float, timeout_s: float | None) -> float:
    """Returns the seconds until the next poll, at most 1. Raises WaitTimedOut after the timeout.

    A tenth of the time that was waited so far, at least 0.05, and never beyond the timeout.
    """
    if timeout_s is not None and waited_s >= timeout_s:
        raise WaitTimedOut(session, status, timeout_s)
    pause_s = min(max(waited_s / 10, _SOONEST_LOOK_S), _LATEST_LOOK_S)
    return pause_s if timeout_s is None else min(pause_s, max(timeout_s - waited_s, 0.0))
