"""File locks (flock), which the kernel releases when the last process with the open file ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path


def open_lock(path: Path) -> int:
    """Opens or creates a lock file and returns its descriptor; it is not locked yet.

    A process that inherits the descriptor shares the lock.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def require_support(folder: Path) -> None:
    """Raise OSError if the folder's file system has no locks."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        share(opened)
    finally:
        os.close(opened)


def take(lock: int) -> bool:
    """Takes the exclusive file lock; returns False at once if another process holds it."""
    return _try(lock, fcntl.LOCK_EX)


def wait(lock: int) -> None:
    """Takes the exclusive file lock; waits while another process holds it."""
    fcntl.flock(lock, fcntl.LOCK_EX)


def share(lock: int) -> bool:
    """Takes the shared file lock; returns False at once if a process holds the exclusive one."""
    return _try(lock, fcntl.LOCK_SH)


def mark(lock: int) -> None:
    """Changes the mark of the lock file, which every process with the open file can read."""
    now = time.time_ns()  # finer than the clock of the file system
    os.utime(lock, ns=(now, now))


def read_mark(lock: int) -> int:
    """Returns the mark of the lock file."""
    return os.fstat(lock).st_mtime_ns


def free(lock: int) -> None:
    """Releases the file lock of an open descriptor; the descriptor stays open."""
    fcntl.flock(lock, fcntl.LOCK_UN)


def is_that_file(lock: int, path: Path) -> bool:
    """Whether the path still refers to the locked file: it was not removed or replaced."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _try(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
