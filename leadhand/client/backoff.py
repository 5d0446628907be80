"""Exponential back-off with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class Patience:
    """Computes the pauses between retries, until a time limit."""

    def __init__(self, limit_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self.renew()

    def renew(self) -> None:
        """Reset the deadline and the pause, after a success."""
        self._since = self._clock()
        self._next_s = FIRST_PAUSE_S
        self.tried = False

    def next_pause_s(self, asked_s: float | None = None) -> float | None:
        """Return the seconds until the next try, doubled each time; None past the deadline."""
        left_s = self._limit_s - (self._clock() - self._since)
        pause_s = max(self._next_s, asked_s or 0.0)
        if pause_s > left_s:
            return None
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)
        self.tried = True
        return pause_s
