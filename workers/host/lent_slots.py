"""Slots that a worker adds while its bodies wait for their child sessions.

A body that waits for a child holds a process of the pool. If all processes waited like that, no
child could run. So the pool has one more process for each that has a child at work.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable
from typing import Any

from celery.utils.log import current_process_index  # type: ignore[attr-defined]  # not in its stubs

log = logging.getLogger(__name__)

#: Maximum processes that are added, and how often the pool's size is adjusted.
MOST = 64
EVERY_S = 0.5
#: Maximum index of a pool process.
_INDEXES = 1024


class LentSlots:
    """Which pool processes have a child at work, in memory shared by all of them."""

    def __init__(self) -> None:
        self._lends = multiprocessing.get_context("fork").Array("b", _INDEXES, lock=False)

    def lender(self) -> Callable[[bool], None]:
        """Return the function by which a pool process lends its slot and takes it back."""
        index = (current_process_index(base=0) or 0) % _INDEXES
        self._lends[index] = 0  # of a process before, which was killed

        def lend(lends: bool, /) -> None:
            self._lends[index] = int(lends)

        return lend

    def count(self) -> int:
        """Return the number of slots that the worker's processes have lent out."""
        return min(MOST, sum(bytes(self._lends)))


class PoolSize:
    """Adjusts the pool of a worker to the slots that are lent, in the event loop of its parent."""

    def __init__(self, slots: LentSlots, *, concurrency: int, draining: Callable[[], bool]) -> None:
        self._slots = slots
        self._concurrency = concurrency
        self._draining = draining

    def watch(self, consumer: Any) -> None:
        """Grow and shrink the process pool of this Celery consumer with the lent slots."""
        if consumer.hub is not None:
            consumer.hub.call_repeatedly(EVERY_S, self.adjust, consumer)

    def adjust(self, consumer: Any) -> None:
        """Start pool processes for lent slots, or end one that is idle."""
        if self._draining():
            return
        missing = self._concurrency + self._slots.count() - consumer.pool.num_processes
        if missing > 0:
            consumer.pool.grow(missing)
            consumer.pool.maintain_pool()
        elif missing < 0:
            try:
                consumer.pool.shrink(1)
            except ValueError:
                return  # all processes are busy; the next call tries again
        if missing:
            log.info("pool has %d processes", consumer.pool.num_processes)
