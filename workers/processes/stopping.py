"""Stops a child process to look at it, and ends it only if what was seen still holds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

#: Seconds to wait until a signal has taken effect.
_PATIENCE_S = 2.0
_POLL_S = 0.001


def stop_and_decide(pid: int, ends: Callable[[], bool]) -> bool:
    """Stops a child process; kills it if `ends` is then true, else continues it; whether it ended.

    Returns whether it has ended. `ends` is not called for a child that has ended already.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        # Looked at before the first signal: the number may be that of another process by now.
        return _exited(os.P_PIDFD, descriptor) or _killed(descriptor, ends)
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)


def has_ended(pid: int) -> bool:
    """Whether a child process has ended, reaped or not."""
    return _exited(os.P_PID, pid)


def _killed(descriptor: int, ends: Callable[[], bool]) -> bool:
    signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
    until = time.monotonic() + _PATIENCE_S
    while not _is_stopped(descriptor):
        if _exited(os.P_PIDFD, descriptor):
            return True
        if time.monotonic() > until:  # it waits for a device; the next round tries again
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            return False
        time.sleep(_POLL_S)
    if not ends():
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
        return False
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    until = time.monotonic() + _PATIENCE_S
    while not _exited(os.P_PIDFD, descriptor) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return True


def _exited(kind: int, number: int) -> bool:
    """Whether a child process has ended; it is left for its parent's own wait."""
    try:
        return os.waitid(kind, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _is_stopped(descriptor: int) -> bool:
    try:
        found = os.waitid(os.P_PIDFD, descriptor, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return found is not None
