"""The exit codes of commands that wait for sessions. Pure."""

from __future__ import annotations

from collections.abc import Iterable

#: The work was accepted, or done.
DONE = 0
#: Wrong input, or our own fault.
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
    """The exit code for an ended session; one that has not ended was left in the middle."""
    return _OF_STATUS.get(status, HALTED)


def worst(statuses: Iterable[str]) -> int:
    """The exit code for several sessions: a failed one outweighs a halted one.

    >>> worst(["completed", "failed", "exited"])
    3
    """
    return max(map(code_of, statuses), default=DONE)
