"""Tells a full disk from a body's own errors: its attempt is handed back and does not count."""

from __future__ import annotations

import errno
from pathlib import Path

from app.fleet.troubles import folder_trouble

#: What a disk says to which nothing can be written.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


class NoRoom(Exception):
    """A body could not start: the disk of the attempt's folder is full."""


def is_no_room(error: BaseException) -> bool:
    """Whether the error means that a disk is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def check_room(error: BaseException, folder: Path) -> None:
    """Raises NoRoom if the error means that the folder's disk is full, and it still is.

    Otherwise a body that needs more room than there ever is would start again and again.
    """
    if not is_no_room(error):
        return
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    why = folder_trouble(folder)
    if why is not None:
        raise NoRoom(why) from error
