"""Detects that a file has changed. Only the standard library: user processes import this too."""

from __future__ import annotations

import os

#: Inode, size, and the times of the last change of content and of status; or the error number.
Stamp = tuple[int, ...]


def stamp_of(file: str | os.PathLike[str]) -> Stamp:
    """Returns a fingerprint of a file from `stat`, which changes when the file changes.

    The status time also catches an edit that keeps the size and restores the modification time.
    """
    try:
        found = os.stat(file)  # noqa: PTH116 - called for each file before each function call
    except OSError as error:
        return (error.errno or 0,)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
