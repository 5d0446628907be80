"""Opens files that a fork of this process does not keep open.

A worker forks its pool processes while other threads hold locks of repositories. A lock (flock)
lasts as long as any process has its open file: without this, a new pool process would keep the lock
for as long as it lives, although the thread that took it has closed the file. Programs that are
started close such files by themselves, unless they are passed on.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

#: Held while a file is opened or closed, and by a fork, so that none comes in between.
_guard = threading.Lock()
_opened: set[int] = set()


def open_here(path: Path) -> int:
    """Open a file to lock, creating it; forks of this process do not have the descriptor."""
    with _guard:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _opened.add(opened)
    return opened


def close_here(opened: int) -> None:
    """Close a file that `open_here` opened."""
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
