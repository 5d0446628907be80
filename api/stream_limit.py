"""Limits the event streams of one process together, and ends them when the process ends."""

from __future__ import annotations

import threading

from leadhand.errors import TooManyStreams


class StreamLimit:
    """The streams of all routes: each has a thread, and some threads are left for other calls."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = threading.BoundedSemaphore(most)
        #: Set when the process ends: each stream ends, and its client connects again.
        self.closing = threading.Event()

    def take(self) -> None:
        """Reserves one of the allowed streams. Raises Refused if all are in use."""
        if not self._free.acquire(blocking=False):
            raise TooManyStreams(self._most)

    def release(self) -> None:
        """Frees a reserved stream."""
        self._free.release()
