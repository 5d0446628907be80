"""Health of this process' folders and of its Redis: full disks, refused writes.

Checked every few seconds and kept in memory, to be shown to users who wait for a session.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from leadhand.models.views.fleet import WorkerView

#: Size of the probe file: larger than the reserve that file systems keep for small writes.
PROBE_BYTES = 64 * 1024
_WHY = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "its disk quota is used up",
    errno.EROFS: "its file system is read-only",
    errno.EACCES: "this process may not write there",
    errno.EPERM: "this process may not write there",
}


def folder_trouble(folder: Path) -> str | None:
    """Writes a probe file to a folder; returns why that fails, or None if it works or is missing.

    A missing folder is created when it is needed.
    """
    try:
        # Without a name where the file system can do that, else with a random one and O_EXCL:
        # processes on several machines may probe one folder at the same time.
        with tempfile.TemporaryFile(dir=folder, prefix=".probe-") as file:
            file.write(b"\0" * PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError:
        return None
    except OSError as error:
        why = _WHY.get(error.errno or 0, error.strerror or str(error))
        return f"cannot write to {str(folder)!r}: {why}; make room there"
    return None


def troubles_at(place: str, workers: Sequence[WorkerView], own: Troubles) -> list[str]:
    """Returns the problems that this process found, and those of the workers at a place (host)."""
    there = (worker for worker in workers if worker.place == place)
    return own.current() + [f"worker {one.name}: {why}" for one in there for why in one.troubles]


class Troubles:
    """The current problems of one process: of its Redis and of its folders."""

    def __init__(self) -> None:
        self._redis: str | None = None
        self._unfit: str | None = None
        #: What may lose data of Redis, as sentences.
        self.warnings: tuple[str, ...] = ()
        self._folders: tuple[str, ...] = ()

    def redis_refuses(self, why: str) -> None:
        """Record that Redis refuses writes, and why; `current` then lists this problem."""
        self._redis = f"Redis {why}: no session continues until it accepts writes again"

    def redis_writes(self) -> None:
        """Record that Redis accepted a write, which removes its recorded problem."""
        self._redis = None

    def redis_examined(self, unfit: str | None, warnings: Sequence[str] = ()) -> None:
        """Record why the Redis cannot be used (None if it can), and what may lose its data."""
        self._unfit = unfit
        self.warnings = tuple(f"Redis may lose data: {warning}" for warning in warnings)

    def check_folders(self, folders: Sequence[Path], *, needed: Path | None = None) -> str | None:
        """Write a probe file to each folder, record failures; returns that of `needed`."""
        found = {folder: folder_trouble(folder) for folder in folders}
        why = found.get(needed) if needed is not None else None
        if needed is not None and why is not None:
            found[needed] = f"{why}; until then this worker takes no steps"
        self._folders = tuple(filter(None, found.values()))
        return why

    def current(self) -> list[str]:
        """Return the recorded problems with Redis and with folders, as sentences."""
        return [*filter(None, [self._redis, self._unfit]), *self._folders]
