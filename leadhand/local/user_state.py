"""The user's own folders: of the services' state, of hooks and worktrees.

They are in `leadhand` of XDG_STATE_HOME. Where that cannot be used (no HOME, a read-only disk, no
file locks), LEADHAND_HOME names a folder that can: its folder `user` has them then.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from leadhand.local import file_locks
from leadhand.local import state_dir as home_folder
from leadhand.local.errors import FolderUnfit, UserStateUnfit
from leadhand.models.definition_folder import folder_with_definitions
from leadhand.models.git_tracking import repository_top

#: The name of the state folder of services with a Redis of their own.
OWN_REDIS = "default"
#: The folder in LEADHAND_HOME that replaces `leadhand` of XDG_STATE_HOME.
FALLBACK = "user"
_PRIVATE = 0o700
MACHINE_ID_FILE = Path("/etc/machine-id")
_OWN_ID = "machine-id"
_ID = re.compile(r"[0-9a-f]{32}")


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
        raise UserStateUnfit(str(folder), home_folder.reason(error)) from error


def _private_folder(env: Mapping[str, str], name: str) -> Path:
    folder = _ours(env) / name
    with usable(folder):
        folder.mkdir(mode=_PRIVATE, exist_ok=True)
        home_folder.close_to_others(folder)
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
        home_folder.close_to_others(folder)
        if not os.access(folder, os.W_OK):  # of a disk that became read-only after it was made
            raise OSError(errno.EROFS, "")
        file_locks.require_support(folder)
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
