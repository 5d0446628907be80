"""The state folder of a set of services: private to its owner, with atomic writes."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from leadhand.local.errors import FolderUnfit

#: The most lines and bytes at the end of a log that an error shows.
_TAIL_LINES = 15
_TAIL_BYTES = 8192
_PRIVATE = 0o700
#: The file with the secrets of a state folder.
_SECRETS = "secrets.json"

_WHY = {
    errno.EACCES: "it may not be written to",
    errno.EPERM: "it may not be written to",
    errno.EROFS: "it is on a read-only file system",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENAMETOOLONG: "its path is too long",
    errno.ENOLCK: "its file system has no locks, like some network file systems",
    errno.EOPNOTSUPP: "its file system has no locks, like some network file systems",
    errno.ENOTDIR: "a part of its path is a file",
    errno.EEXIST: "a file of that name is in the way",
}


class Secrets(NamedTuple):
    """The secret that signs programs and the API's token, of one set of services."""

    secret: str
    api_token: str


def prepare(home: Path) -> Path:
    """Creates the state folder, private to this user and ignored by git. Raises FolderUnfit."""
    require_own(home)
    with fit(home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        close_to_others(home)
        for folder in (home / "log", home / "redis", home / "spill"):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not (home / ".gitignore").exists():
            (home / ".gitignore").write_text("*\n")
    return home


def close_to_others(folder: Path) -> None:
    """Set mode 0700 on a folder. Raises OSError for a link or another user's folder."""
    if folder.is_symlink():
        raise OSError(0, "it is a symbolic link")
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(opened)
        if found.st_uid != os.getuid():
            raise OSError(0, f"it belongs to user {found.st_uid}")
        if stat.S_IMODE(found.st_mode) != _PRIVATE:
            os.fchmod(opened, _PRIVATE)
    finally:
        os.close(opened)


def require_own(home: Path) -> None:
    """Raise FolderUnfit for a state folder that others may have written.

    The sessions in it run commands. So it is no link, belongs to this user, and is open to no other
    user; an empty one becomes so.
    """
    with fit(home), suppress(FileNotFoundError):
        found = home.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise OSError(0, "it is a symbolic link")
        if not stat.S_ISDIR(found.st_mode):
            raise FileExistsError(errno.EEXIST, "")
        if found.st_uid != os.getuid():
            raise OSError(0, f"it belongs to user {found.st_uid}")
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077 and any(home.iterdir()):
            hint = "if all in it is yours, run `chmod 700` on it"
            raise OSError(0, f"others may open it (mode {mode:o}); {hint}")


def read_secrets(home: Path) -> Secrets:
    """Reads the secrets of a state folder; makes them the first time. Raises FolderUnfit.

    The caller holds the supervisor's lock.
    """
    file = home / _SECRETS
    with fit(home):
        found = read_fields(file)
        known = Secrets(str(found.get("secret") or ""), str(found.get("api_token") or ""))
        if all(known):
            return known
        made = Secrets(*(text or secrets.token_urlsafe(32) for text in known))
        write_fields(file, made._asdict())
    return made


@contextmanager
def fit(home: Path) -> Iterator[None]:
    """Context manager that converts an OSError in its block to FolderUnfit for the folder."""
    try:
        yield
    except OSError as error:
        raise FolderUnfit(str(home), reason(error)) from error


def reason(error: OSError) -> str:
    """Describes an OSError as text for users."""
    return _WHY.get(error.errno or 0, error.strerror or str(error))


def write_whole(path: Path, content: str) -> None:
    """Writes a file with mode 0600 atomically."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def write_fields(path: Path, fields: Mapping[str, str | int | float | list[str]]) -> None:
    """Replaces a file with these fields as JSON, atomically."""
    write_whole(path, json.dumps(dict(fields), indent=1) + "\n")


def read_fields(path: Path) -> dict[str, str | int | float]:
    """Reads the fields in a JSON file; empty if the file is missing or invalid."""
    try:
        fields = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def tail(log: Path, *, since: int = 0) -> str:
    """Returns the last lines of a log after this offset, each once; '' if it is unreadable."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, size(log) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(dict.fromkeys(lines[-_TAIL_LINES:]))


def size(log: Path) -> int:
    """Returns the size of a log in bytes; 0 if it does not exist."""
    return log.stat().st_size if log.exists() else 0
