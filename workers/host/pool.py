"""A worker's pool processes: how many there are, when they take steps, and what a dead one leaves.

A process takes 31 MB, so a pool for 16 agents is not kept for one. Slots that bodies lend while
they wait for child sessions are added (`lent_slots`).

A body that waits for a child holds a process of the pool. If all processes waited like that, no
child could run. So the pool has one more process for each that has a child at work.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from celery.concurrency.prefork import TaskPool
from celery.utils.log import current_process_index  # type: ignore[attr-defined]  # not in its stubs
from celery.worker import state

from app.engine import Engine
from app.fleet.troubles import PROBE_BYTES, folder_trouble
from app.sweep import HeldStep, attempts_of_dead_workers, expire_attempt
from tasks.periodic import STEADY, Pace, PeriodicThread
from workers.processes.orphans import end_commands_of

#: Maximum processes that are added.
MOST = 64
#: Maximum index of a pool process.
_INDEXES = 1024
log = logging.getLogger(__name__)
#: How often the pool's size is adjusted, in seconds.
EVERY_S = 0.5
#: Seconds with half of the processes idle before one of them ends.
QUIET_S = 30.0
#: The prefix of an embedded worker's name; its supervisor's pid follows.
EMBEDDED = "embedded-"
#: Seconds between two checks whether the commands of dead workers have ended.
LOOK_EVERY_S = 0.1


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
        """Return the number of pool processes that have lent their slot to a child session."""
        return min(MOST, sum(bytes(self._lends)))


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


class DeadWorkers(PeriodicThread):
    """Expires the attempts that dead workers held when this worker began; then it ends.

    A dead worker's command may run on for the grace period of its launcher. The step is free once
    the command has ended, so that no two attempts run at the same time. After one lease the
    attempts that are left have expired by themselves.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__("leases of dead workers", LOOK_EVERY_S, self.expire_attempts)
        self._engine = engine
        self._left: list[HeldStep] | None = None
        self._give_up = time.monotonic() + engine.settings.lease_s

    def expire_attempts(self) -> None:
        """Expire the attempts of dead workers once their commands have ended. Raises StoreAway."""
        if self._left is None:
            self._left = attempts_of_dead_workers(self._engine, is_gone)
        ended = {owner: _has_ended(owner) for owner in {held.owner for held in self._left}}
        for held in [held for held in self._left if ended[held.owner]]:
            expire_attempt(self._engine, held)
            self._left.remove(held)
        if not self._left or time.monotonic() > self._give_up:
            self._stop.set()


def is_gone(owner: str) -> bool:
    """Whether the embedded worker process that owns an attempt has ended; False if unknown.

    >>> is_gone("embedded-1/4194305"), is_gone("elsewhere-1/4194305"), is_gone("embedded-1/x")
    (True, False, False)
    """
    pid = _pid_of(owner)
    return owner.startswith(EMBEDDED) and pid is not None and not _runs(pid)


def _has_ended(owner: str) -> bool:
    pid = _pid_of(owner)
    return pid is None or end_commands_of(pid)


def _pid_of(owner: str) -> int | None:
    pid = owner.rpartition("/")[2]
    return int(pid) if pid.isdecimal() else None


def _runs(pid: int) -> bool:
    """Whether the process runs; a zombie has ended, and a parent may never reap it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.AccessDenied:
        return True
    except psutil.NoSuchProcess:
        return False


class Intake:
    """Whether a worker takes steps; shared by its parent and its pool processes.

    The parent checks the folder periodically and calls `update`. A pool process asks `is_paused`
    before each claim, because the disk may be full since the last check.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._flag = multiprocessing.get_context("fork").Value("b", 0, lock=False)
        self._logged: str | None = None
        self._consumer: Any = None
        #: The queues to consume again; used only by the consumer's thread.
        self._cancelled: set[str] = set()

    def is_paused(self) -> bool:
        """Whether the worker takes no steps now; checks the spill folder if its disk is short."""
        if not self._flag.value and _is_short(self._folder):
            self._flag.value = int(folder_trouble(self._folder) is not None)
        return bool(self._flag.value)

    def pause(self) -> None:
        """Take no more steps until the parent process has checked the spill folder."""
        self._flag.value = 1

    def watch(self, consumer: object) -> None:
        """Pause and resume this Celery consumer from now on."""
        self._consumer = consumer
        self._apply_soon()

    def update(self, trouble: str | None) -> None:
        """Pause the worker if there is trouble with its spill folder; resume it with None."""
        if (trouble is None) != (self._logged is None):
            log.warning("takes %s steps", "no" if trouble else "again", extra={"why": trouble})
        self._logged = trouble
        self._flag.value = int(trouble is not None)
        self._apply_soon()

    def _apply_soon(self) -> None:
        if self._consumer is not None:  # another thread must not use its connection
            self._consumer.call_soon(self._apply)

    def _apply(self) -> None:
        tasks = self._consumer.task_consumer
        if tasks is None:  # between two connections; the next update comes in seconds
            return
        if self._flag.value:
            for name in [queue.name for queue in tasks.queues]:
                self._consumer.cancel_task_queue(name)
                self._cancelled.add(name)
            return
        for name in list(self._cancelled):
            self._consumer.add_task_queue(name)
            self._cancelled.discard(name)


def _is_short(folder: Path) -> bool:
    """Whether the folder's disk reports too little room; some file systems report anything."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < PROBE_BYTES
