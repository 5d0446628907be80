"""Decides when a supervisor stops: no command is attached and no session is live."""

from __future__ import annotations

import os
from typing import Protocol

from leadhand.local import file_locks

#: Seconds for which an API that does not respond is assumed to have live sessions.
_BLIND_S = 60.0


class Sessions(Protocol):
    """Reports whether a session is live; raises OSError if that is unknown."""

    def has_live_session(self) -> bool:
        """Whether a session is live; raises OSError if that is unknown."""


class IdleShutdown:
    """The idle state of one supervisor; time is an argument."""

    def __init__(self, commands_lock: int, sessions: Sessions, *, linger_s: float) -> None:
        self._commands_lock = commands_lock
        self._sessions = sessions
        self._linger_s = linger_s
        self._idle_since_s: float | None = None
        self._blind_since_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """Whether the supervisor was idle long enough to stop; if so, locks new commands out."""
        if not self._is_unattended() or self._is_wanted(now_s):
            self._idle_since_s = None
            return False
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        if now_s - self._idle_since_s < self._linger_s:
            return False
        return self._may_leave(now_s)

    def _may_leave(self, now_s: float) -> bool:
        """Check the sessions again under the exclusive lock: a command may have come and gone."""
        if not file_locks.take(self._commands_lock):
            return False
        if not self._is_wanted(now_s):
            return True
        file_locks.free(self._commands_lock)
        return False

    def _is_unattended(self) -> bool:
        alone = file_locks.take(self._commands_lock)
        if alone:
            file_locks.free(self._commands_lock)
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
        """Close the lock file of commands, which releases its lock."""
        os.close(self._commands_lock)
