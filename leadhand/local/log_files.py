"""Rotates logs that other processes append to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_LARGEST = 4 * 1024 * 1024


def bound(folder: Path, *, largest: int = _LARGEST) -> None:
    """Rotates each too large log of a folder: copies it to LOG.1 and empties it.

    Writers have the log open for appending, so it is copied and truncated, not renamed.
    """
    for log in folder.glob("*.log"):
        if log.stat().st_size > largest:
            former = log.with_suffix(".log.1")
            shutil.copyfile(log, former)
            os.truncate(log, 0)
