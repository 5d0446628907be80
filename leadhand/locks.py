"""Locks on files, which the kernel frees when the last holder of the open file has died."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def open_lock(path: Path) -> int:
    """An open file to lock; whoever inherits it holds the same lock."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def take(lock: int) -> bool:
    """Take it alone, where nobody else holds it; at once."""
    return _try(lock, fcntl.LOCK_EX)


def share(lock: int) -> bool:
    """Take it together with others who share it; at once."""
    return _try(lock, fcntl.LOCK_SH)


def free(lock: int) -> None:
    fcntl.flock(lock, fcntl.LOCK_UN)


def is_that_file(lock: int, path: Path) -> bool:
    """False where the path has been removed or made anew since the lock was opened."""
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
