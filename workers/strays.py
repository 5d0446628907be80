"""The last resort against processes that outlived their tree: a mark in their environment."""

from __future__ import annotations

import contextlib
import os

import psutil

#: The variable that a command starts with, and all whom it starts unless they clear it.
MARK = "LEADHAND_TREE"


def kill_strays(mark: str) -> list[int]:
    """Kill every process that carries the mark, until no scan finds one; answers who they were."""
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
    if process.pid == os.getpid():
        return False
    try:
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False
