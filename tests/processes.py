"""Inspects and ends processes that may end at any moment by themselves."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.waiting import wait_until


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
    """SIGKILL to all of them, until each has ended.

    Zombies have ended: their new parent may collect them seconds later.
    """
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended before the call
            process.kill()
    wait_until(lambda: not any(map(runs, family)), timeout=15)


def handles_sigterm(pid: int) -> bool:
    """Whether the process handles the signal by itself."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt")
    )
    return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
