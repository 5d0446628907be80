"""Finds and kills the processes that commands left, by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import secrets

import psutil

from workers.processes import launcher

#: The variable that marks a command and its descendants, unless they clear it.
MARK = "LEADHAND_TREE"


def new_mark() -> str:
    """Returns a unique mark for a command of this process: its pid and a random word."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def end_commands_of(worker: int) -> bool:
    """Kills a dead worker's processes if no launcher of it runs; returns whether none was left.

    A launcher ends its command by itself. Processes that are left without one are killed.
    """
    prefix = f"{worker}-"
    left = [one for one in psutil.process_iter() if (_mark_of(one) or "").startswith(prefix)]
    if not any(map(_is_launcher, left)):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
    return not left


def kill_orphans(mark: str) -> list[int]:
    """Kill every process with the mark in its environment, in up to 10 scans; return the pids."""
    killed: list[int] = []
    for _ in range(10):
        found = [process for process in psutil.process_iter() if _carries(process, mark)]
        if not found:
            break
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed.append(process.pid)
        psutil.wait_procs(found, timeout=1)
    return killed


def _carries(process: psutil.Process, mark: str) -> bool:
    return process.pid != os.getpid() and _mark_of(process) == mark


def _mark_of(process: psutil.Process) -> str | None:
    """The mark of a process that runs; None without one, and if its environment is unreadable."""
    try:
        alive = process.status() != psutil.STATUS_ZOMBIE
        return process.environ().get(MARK) if alive else None
    except (psutil.Error, OSError):
        return None


def _is_launcher(process: psutil.Process) -> bool:
    try:
        return launcher.__file__ in process.cmdline()
    except psutil.Error:
        return False
