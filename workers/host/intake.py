"""Stops a worker from taking steps while its spill folder is full: each body would fail there."""

from __future__ import annotations

import logging
import multiprocessing
import os
from pathlib import Path
from typing import Any

from app.fleet.troubles import PROBE_BYTES, folder_trouble

log = logging.getLogger(__name__)


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
