"""The drain flag, shared by a worker's parent and its pool processes; SIGTERM sets it."""

from __future__ import annotations

import multiprocessing


class Drain:
    """A flag in shared memory, seen by every process forked after its creation."""

    def __init__(self) -> None:
        self._flag = multiprocessing.get_context("fork").Value("b", 0, lock=False)

    def begin(self) -> None:
        """Set the flag, shared by the worker's processes, by which no new step starts."""
        self._flag.value = 1

    def under_way(self) -> bool:
        """Whether the worker is shutting down."""
        return bool(self._flag.value)
