"""Decides when a supervisor stops: no command came for a while, and no session is live."""

from __future__ import annotations

import os
from typing import Protocol

from leadhand.local import file_locks

#: Seconds for which an API that does not respond is assumed to have live sessions.
_BLIND_S = 60.0
#: Seconds between two looks at the sessions while no command is attached.
_SESSIONS_LOOK_S = 15.0


class Sessions(Protocol):
    """Reports whether a session is live; raises OSError if that is unknown."""

    def has_live_session(self) -> bool:
        """Whether a session is live; raises OSError if that is unknown."""


class IdleShutdown:
    """The idle state of one supervisor; time is an argument.

    The clock starts again with each command, which marks the lock file (`file_locks.mark`), and
    while a session is live.
    """

    def __init__(self, commands_lock: int, sessions: Sessions, *, linger_s: float) -> None:
        self._commands_lock = commands_lock
        self._sessions = sessions
        self._linger_s = linger_s
        self._mark = file_locks.read_mark(commands_lock)
        self._idle_since_s: float | None = None
        self._sessions_due_s = 0.0
        self._blind_since_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """Whether the supervisor was idle long enough to stop; if so, locks new commands out."""
        if self._was_used() or self._idle_since_s is None:
            self._idle_since_s = now_s
        if now_s >= self._sessions_due_s:
            self._sessions_due_s = now_s + min(self._linger_s, _SESSIONS_LOOK_S)
            if self._is_wanted(now_s):
                self._idle_since_s = now_s
        return now_s - self._idle_since_s >= self._linger_s and self._may_leave(now_s)

    def _may_leave(self, now_s: float) -> bool:
        """Check again under the exclusive lock: a command may have come and gone."""
        if not file_locks.take(self._commands_lock):
            return False
        if file_locks.read_mark(self._commands_lock) == self._mark and not self._is_wanted(now_s):
            return True
        file_locks.free(self._commands_lock)
        return False

    def _was_used(self) -> bool:
        """Whether a command is attached, or has been since the last call."""
        mark, before = file_locks.read_mark(self._commands_lock), self._mark
        self._mark = mark
        if not file_locks.take(self._commands_lock):
            return True
        file_locks.free(self._commands_lock)
        return mark != before

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
