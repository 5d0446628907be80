"""Waits longer each time, until the time that it was given is over."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class Patience:
    """What a retry has left of both its time and its tries."""

    def __init__(
        self,
        limit_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._sleep = sleep
        self.renew()

    def renew(self) -> None:
        """Begin anew, as if nothing had gone wrong yet."""
        self._since = self._clock()
        self._next_s = FIRST_PAUSE_S
        self.tried = False

    def next_pause_s(self, asked_s: float | None = None) -> float | None:
        """How long to wait now, at least as long as was asked; None where no time is left."""
        left_s = self._limit_s - (self._clock() - self._since)
        pause_s = max(self._next_s, asked_s or 0.0)
        if pause_s > left_s:
            return None
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)
        self.tried = True
        return pause_s

    def pause(self, asked_s: float | None = None) -> bool:
        """Wait so long; False, without waiting, where no time is left."""
        pause_s = self.next_pause_s(asked_s)
        if pause_s is None:
            return False
        self._sleep(pause_s)
        return True
