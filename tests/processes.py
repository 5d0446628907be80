"""Looks at processes that may end while they are looked at, and ends them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psutil


def runs(process: psutil.Process) -> bool:
    """Whether it runs; one that ended and was not yet collected by its parent does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def words(process: psutil.Process) -> list[str]:
    """What it was started with; nothing once it ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # one that was not yet collected raises a kind of this, too
        return []


def kill(family: Sequence[psutil.Process]) -> None:
    """SIGKILL to all of them, until each has ended."""
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself meanwhile
            process.kill()
    _, left = psutil.wait_procs(family, timeout=15)
    assert not [process for process in left if runs(process)]
