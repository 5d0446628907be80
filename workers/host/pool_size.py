"""Grows and shrinks a worker's process pool with its work, and keeps it full.

A process takes 31 MB, so a pool for 16 agents is not kept for one. Slots that bodies lend while
they wait for child sessions are added (`lent_slots`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from celery.concurrency.prefork import TaskPool
from celery.worker import state

from tasks.periodic import STEADY, Pace, PeriodicThread
from workers.host.lent_slots import LentSlots

log = logging.getLogger(__name__)

#: How often the pool's size is adjusted, in seconds.
EVERY_S = 0.5
#: Seconds with half of the processes idle before one of them ends.
QUIET_S = 30.0


class ReplacingPool(TaskPool):
    """A prefork pool that replaces processes which die before the first message, as later ones."""

    def did_start_ok(self) -> bool:
        """Replace what has died since the start; Celery would end the worker for one process."""
        self.maintain_pool()
        return True


class PoolSize(PeriodicThread):
    """Adjusts the pool of a worker periodically, in the event loop of its parent process."""

    def __init__(
        self,
        slots: LentSlots,
        *,
        least: int,
        most: int,
        draining: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        pace: Pace = STEADY,
    ) -> None:
        super().__init__("pool size", EVERY_S, self._adjust_soon, pace=pace)
        self._consumer: Any = None
        self._slots = slots
        self._least = self._size = least
        self._most = most
        self._draining = draining
        self._clock = clock
        self._needed_at = clock()
        self._was_full = False

    def watch(self, consumer: Any) -> None:
        """Adjust the process pool of this Celery consumer from now on."""
        if consumer.hub is not None:
            self._consumer = consumer
            self.start()

    def _adjust_soon(self) -> None:
        self._consumer.call_soon(self.adjust, self._consumer)

    def adjust(self, consumer: Any) -> None:
        """Start pool processes for the work, or end one that is idle."""
        if self._draining():
            return
        lent = self._slots.count()
        self._choose_size(len(state.reserved_requests), lent)
        missing = self._size + lent - consumer.pool.num_processes
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

    def _choose_size(self, busy: int, lent: int) -> None:
        """Double the size while all processes are busy; take one away after a quiet time."""
        now, own = self._clock(), busy - lent
        if own > self._size // 2 or self._size <= self._least:
            self._needed_at = now
        elif now - self._needed_at >= QUIET_S:
            self._size -= 1
        # Twice in a row: what is busy for a moment, such as with checks, needs no more processes.
        is_full = own >= self._size
        if is_full and self._was_full:
            self._size = min(self._most, 2 * self._size)
        self._was_full = is_full
