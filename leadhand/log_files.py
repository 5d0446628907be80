"""Keeps logs that others append to within bounds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_LARGEST = 4 * 1024 * 1024


def bound(folder: Path, *, largest: int = _LARGEST) -> None:
    """Keep one former part of each log that has grown too large, and let it begin anew.

    The writers hold it open for appending, so it is copied and cut, not renamed.
    """
    for log in folder.glob("*.log"):
        if log.stat().st_size > largest:
            former = log.with_suffix(".log.1")
            shutil.copyfile(log, former)
            os.truncate(log, 0)
