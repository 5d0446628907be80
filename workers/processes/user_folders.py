"""Creates folders and files for this user only, and never follows another user's link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC


class FolderForeign(OSError):
    """The folder is a link, is not a folder, or belongs to another user."""

    def __init__(self, folder: str, why: str) -> None:
        super().__init__(folder, why)
        self.folder = folder
        self.why = why

    def __str__(self) -> str:
        return (
            f"the folder {self.folder!r} {self.why}; remove it, "
            "or set LEADHAND_SPILL to a folder of this user"
        )


def claim_folder(folder: Path) -> None:
    """Creates a folder, or takes over an own one, with mode 0700. Raises FolderForeign, OSError."""
    if _is_ours_alone(folder):
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW)
    except OSError as error:
        raise _refusal(folder, error) from error
    try:
        found = os.fstat(opened)
        if found.st_uid != os.getuid():
            raise FolderForeign(str(folder), f"belongs to user {found.st_uid}, not to this one")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(opened, 0o700)
    finally:
        os.close(opened)


def _is_ours_alone(folder: Path) -> bool:
    """Whether it is a folder of this user, closed to others: one system call for each step."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    is_folder = stat.S_ISDIR(found.st_mode)
    return is_folder and found.st_uid == os.getuid() and not found.st_mode & 0o077


def claim_session_folder(folder: Path) -> None:
    """Creates a folder of a session, and the session's folder above it, with mode 0700."""
    claim_folder(folder.parent)
    claim_folder(folder)


def create_file(path: Path) -> BinaryIO:
    """Create a file with mode 0600, replacing any of that name; return it open for writing."""
    path.unlink(missing_ok=True)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o600)
    return os.fdopen(opened, "wb")


def _refusal(folder: Path, error: OSError) -> OSError:
    """FolderForeign if the cause is what is at the folder's path, else the error itself."""
    if folder.is_symlink():
        return FolderForeign(str(folder), "is a symbolic link")
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return FolderForeign(str(folder), "is not a folder")
    if error.errno == errno.EACCES and folder.exists() and folder.stat().st_uid != os.getuid():
        return FolderForeign(str(folder), "belongs to another user")
    return error
