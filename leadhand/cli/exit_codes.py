"""Exit codes of commands that wait for sessions (pure)."""

from __future__ import annotations

from collections.abc import Iterable

#: The work was accepted or done.
DONE = 0
#: Invalid input or an internal error.
FAULT = 1
#: Stopped, exited or aborted.
HALTED = 2
#: Ended without acceptance.
FAILED = 3
_OF_STATUS = {
    "completed": DONE,
    "failed": FAILED,
    "stopped": HALTED,
    "exited": HALTED,
    "aborted": HALTED,
}


def code_of(status: str) -> int:
    """Returns the exit code for a session's status; HALTED for one that has not ended."""
    return _OF_STATUS.get(status, HALTED)


def worst(statuses: Iterable[str]) -> int:
    """Returns one exit code for several sessions' statuses: failed before halted; 0 for none.

    >>> worst(["completed", "failed", "exited"])
    3
    """
    return max(map(code_of, statuses), default=DONE)
