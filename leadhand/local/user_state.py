"""The user's own folders: of the services' state, of hooks and worktrees.

They are in `leadhand` of XDG_STATE_HOME. Where that cannot be used (no HOME, a read-only disk, no
file locks), LEADHAND_HOME names a folder that can: its folder `user` has them then.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from leadhand.local import processes
from leadhand.local.errors import FolderUnfit, UserStateUnfit
from leadhand.models.folder_settings import folder_with_definitions
from leadhand.models.git_settings import repository_top

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
#: The name of the state folder of services with a Redis of their own.
OWN_REDIS = "default"
#: The folder in LEADHAND_HOME that replaces `leadhand` of XDG_STATE_HOME.
FALLBACK = "user"
MACHINE_ID_FILE = Path("/etc/machine-id")
_OWN_ID = "machine-id"
_ID = re.compile(r"[0-9a-f]{32}")


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


def state_folder(env: Mapping[str, str]) -> Path:
    """Returns the state folder of the services that a command uses; it may not exist yet.

    LEADHAND_HOME names it. By default there is one for each user, machine and LEADHAND_REDIS_URL.
    Raises UserStateUnfit, and FolderUnfit for a named folder in a git work tree: what is in it may
    come from others, and `git clean` removes what does not.
    """
    named = env.get("LEADHAND_HOME")
    if named:
        home = Path(named).absolute()
        top = repository_top(home.resolve().parent)
        if top is not None:
            raise FolderUnfit(str(home), f"it is in the git work tree {str(top)!r}")
        return home
    ours = _state_home(env) / "leadhand"
    with usable(ours):
        return ours / machine_id(ours) / set_name(env.get("LEADHAND_REDIS_URL") or "")


def set_name(redis_url: str) -> str:
    """Returns the name of the state folder for a Redis: a hash of the URL without its password.

    >>> set_name(""), set_name("redis://:old@host:6379/0") == set_name("redis://:new@host:6379/0")
    ('default', True)
    """
    if not redis_url:
        return OWN_REDIS
    parts = urlsplit(redis_url)
    where = f"{parts.scheme}://{parts.username or ''}@{parts.netloc.rpartition('@')[2]}"
    return hashlib.sha256(f"{where}{parts.path}?{parts.query}".encode()).hexdigest()[:16]


def hooks_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder in which agents' hooks store files; creates it with mode 0700.

    Raises UserStateUnfit.
    """
    return _private_folder(env, "hooks")


def approvals_file(env: Mapping[str, str]) -> Path:
    """Returns the path of the file that lists which definition files the user has approved.

    Raises UserStateUnfit.
    """
    return hooks_folder(env) / "trusted.json"


def worktrees_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder of the git worktrees and copies of tasks; it may not exist yet.

    Raises UserStateUnfit.
    """
    return _ours(env) / "worktrees"


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Context manager that converts an OSError in its block to UserStateUnfit with the folder."""
    try:
        yield
    except OSError as error:
        raise UserStateUnfit(str(folder), reason(error)) from error


def _private_folder(env: Mapping[str, str], name: str) -> Path:
    folder = _ours(env) / name
    with usable(folder):
        folder.mkdir(mode=_PRIVATE, exist_ok=True)
        close_to_others(folder)
    return folder


def _ours(env: Mapping[str, str]) -> Path:
    """The folder that has all others, created with mode 0700."""
    named = env.get("LEADHAND_HOME")
    try:
        return _prepared(_state_home(env) / "leadhand")
    except UserStateUnfit:
        if not named:
            raise
    return _prepared(Path(named).absolute() / FALLBACK)


def _prepared(folder: Path) -> Path:
    with usable(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=_PRIVATE, exist_ok=True)
        close_to_others(folder)
        if not os.access(folder, os.W_OK):  # of a disk that became read-only after it was made
            raise OSError(errno.EROFS, "")
        processes.require_support(folder)
    return folder


def _state_home(env: Mapping[str, str]) -> Path:
    """XDG_STATE_HOME if it is an absolute path, otherwise ~/.local/state."""
    named = Path(env.get("XDG_STATE_HOME") or "")
    if named.is_absolute():
        return named
    user = home_of(env)
    if user is None:
        raise UserStateUnfit("~/.local/state/leadhand", "this user has no home folder")
    return user.absolute() / ".local" / "state"


def home_of(env: Mapping[str, str]) -> Path | None:
    """Returns the user's home folder; None for a user without one, as in some containers."""
    try:
        return Path(env.get("HOME") or Path.home())
    except RuntimeError:
        return None


def defining_folder(folder: Path, env: Mapping[str, str]) -> Path | None:
    """Returns the nearest folder upward that defines agents, flows or tools; None if none does."""
    return folder_with_definitions(folder, home_of(env))


def machine_id(ours: Path, *, system: Path = MACHINE_ID_FILE) -> str:
    """Returns the machine's id, 32 hex digits; creates one in `ours` if there is none."""
    return _read_machine_id(system) or _read_machine_id(ours / _OWN_ID) or _make_machine_id(ours)


def _make_machine_id(ours: Path) -> str:
    """Create the file with a new id; of several processes one wins, and all return its id."""
    ours.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    made, file = secrets.token_hex(16), ours / _OWN_ID
    draft = ours / f"{_OWN_ID}.{made}"
    draft.write_text(made + "\n")
    try:
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink()
    kept = _read_machine_id(file)
    if not kept:
        raise OSError(0, f"{str(file)!r} has no machine id; remove it")
    return kept


def _read_machine_id(file: Path) -> str:
    """The id in a file; '' if it has none, as in a container or before a first boot."""
    try:
        found = file.read_text(errors="replace").strip()
    except OSError:
        return ""
    return found if _ID.fullmatch(found) else ""
