"""The state folder of a working folder: `.leadhand/`, for its owner's eyes only."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from leadhand.start_errors import FolderUnfit

#: How much of a log's end an error shows.
_TAIL_LINES = 15
_TAIL_BYTES = 8192

_WHY = {
    errno.EACCES: "it may not be written to",
    errno.EPERM: "it may not be written to",
    errno.EROFS: "it lies on a read-only file system",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENAMETOOLONG: "its path is too long",
    errno.ENOLCK: "its file system keeps no locks, as some network file systems do not",
    errno.EOPNOTSUPP: "its file system keeps no locks, as some network file systems do not",
    errno.ENOTDIR: "a part of its path is a file",
    errno.EEXIST: "a file of that name is in the way",
}


def prepare(home: Path) -> Path:
    """Make the folder, closed to others and hidden from git. Raises FolderUnfit."""
    with fit(home):
        for folder in (home, home / "log", home / "redis", home / "spill"):
            folder.mkdir(mode=0o700, parents=folder is home, exist_ok=True)
        home.chmod(0o700)
        if not (home / ".gitignore").exists():
            (home / ".gitignore").write_text("*\n")
    return home


@contextmanager
def fit(home: Path) -> Iterator[None]:
    """Tell what a failed system call says about the folder. Raises FolderUnfit."""
    try:
        yield
    except OSError as error:
        why = _WHY.get(error.errno or 0, error.strerror or str(error))
        raise FolderUnfit(str(home), why) from error


def write_whole(path: Path, content: str) -> None:
    """Write a file that only its owner may read; readers see the old one or the new one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def write_fields(path: Path, fields: Mapping[str, str | int | float]) -> None:
    write_whole(path, json.dumps(dict(fields), indent=1) + "\n")


def read_fields(path: Path) -> dict[str, str | int | float]:
    """What a file of fields holds; nothing where it is missing or was cut short."""
    try:
        fields = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def tail(log: Path, *, since: int = 0) -> str:
    """The last lines of a log, of those written since it had this size."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, size(log) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_TAIL_LINES:])


def size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0
