"""Drain: one flag, shared by a worker's parent and its pool processes, set when TERM comes."""

from __future__ import annotations

import multiprocessing


class Drain:
    """Set once, seen by every process that was forked after it was made."""

    def __init__(self) -> None:
        self._flag = multiprocessing.get_context("fork").Value("b", 0, lock=False)

    def begin(self) -> None:
        """Let nothing new start."""
        self._flag.value = 1

    def under_way(self) -> bool:
        """Whether the worker is about to end."""
        return bool(self._flag.value)
