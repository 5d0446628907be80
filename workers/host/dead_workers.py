"""Ends the leases of a dead embedded worker's attempts as soon as their commands have ended."""

from __future__ import annotations

import time

import psutil

from app.engine import Engine
from app.sweep import HeldStep, attempts_of_dead_workers, expire_attempt
from tasks.periodic import PeriodicThread
from workers.processes.orphans import end_commands_of

#: The prefix of an embedded worker's name; its supervisor's pid follows.
EMBEDDED = "embedded-"
#: Seconds between two checks whether the commands of dead workers have ended.
EVERY_S = 0.1


class DeadWorkers(PeriodicThread):
    """Expires the attempts that dead workers held when this worker began; then it ends.

    A dead worker's command may run on for the grace period of its launcher. The step is free once
    the command has ended, so that no two attempts run at the same time. After one lease the
    attempts that are left have expired by themselves.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__("leases of dead workers", EVERY_S, self.expire_attempts)
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
