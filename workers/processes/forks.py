"""Keeps forks of this process apart from what other threads open.

A worker's main process forks its pool processes while its threads start programs and hold locks of
repositories. What is open at that moment is open in the fork, too, as long as that lives: a lock
(flock) that is never free again, or the pipe by which `subprocess` waits until a program has
started. `FD_CLOEXEC` does not help, as a fork starts no program.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Held by a fork, and while something is opened that it must not see.
_guard = threading.Lock()
_opened: set[int] = set()


@contextmanager
def no_fork() -> Iterator[None]:
    """Hold back forks of this process during a `with` block, which should only start a program."""
    with _guard:
        yield


def open_here(path: Path) -> int:
    """Open or create a file to lock; return its descriptor, which forks of this process lack."""
    with _guard:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _opened.add(opened)
    return opened


def close_here(opened: int) -> None:
    """Unregister and close a descriptor that `open_here` returned."""
    with _guard:
        _opened.discard(opened)
        os.close(opened)


def _drop_in_child() -> None:
    for opened in _opened:
        os.close(opened)
    _opened.clear()
    _guard.release()


os.register_at_fork(
    before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_drop_in_child
)
