"""Decides when a supervisor may leave: nobody is at work, and no session wants to go on."""

from __future__ import annotations

import os
from typing import Protocol

from leadhand import locks

#: How long an API that does not answer is trusted to have sessions that want to go on.
_BLIND_S = 60.0


class Sessions(Protocol):
    """Knows whether a session wants to go on; raises OSError where it cannot tell."""

    def has_live_session(self) -> bool: ...


class Life:
    """One supervisor's right to live; time comes as an argument."""

    def __init__(self, commands_lock: int, sessions: Sessions, *, linger_s: float) -> None:
        self._commands_lock = commands_lock
        self._sessions = sessions
        self._linger_s = linger_s
        self._idle_since_s: float | None = None
        self._blind_since_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """True when it is time to leave; from then on whoever comes waits until we are gone."""
        if not self._nobody_is_at_work() or self._is_wanted(now_s):
            self._idle_since_s = None
            return False
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        if now_s - self._idle_since_s < self._linger_s:
            return False
        return self._may_leave(now_s)

    def _may_leave(self, now_s: float) -> bool:
        """Look once more with the door shut: a command may have come, worked and gone."""
        if not locks.take(self._commands_lock):
            return False
        if not self._is_wanted(now_s):
            return True
        locks.free(self._commands_lock)
        return False

    def _nobody_is_at_work(self) -> bool:
        alone = locks.take(self._commands_lock)
        if alone:
            locks.free(self._commands_lock)
        return alone

    def _is_wanted(self, now_s: float) -> bool:
        try:
            wanted = self._sessions.has_live_session()
        except OSError:
            if self._blind_since_s is None:
                self._blind_since_s = now_s
            return now_s - self._blind_since_s < _BLIND_S
        self._blind_since_s = None
        return wanted

    def close(self) -> None:
        os.close(self._commands_lock)
