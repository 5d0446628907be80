"""The user's own folders: of the services' state, of bindings, hooks and worktrees.

Services read the definitions of at most one folder, so that those of a folder, such as a cloned
repository, never apply to the sessions of others: it has a state folder of its own (decision 66).

They are in `leadhand` of XDG_STATE_HOME. Where that cannot be used (no HOME, a read-only disk, no
file locks), LEADHAND_HOME names a folder that can: its folder `user` has them then.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from leadhand.local import file_locks
from leadhand.local import state_dir as home_folder
from leadhand.local.errors import UserStateUnfit
from leadhand.local.machine_id import machine_id

#: The name of the state folder of services with a Redis of their own.
OWN_REDIS = "default"
#: The folder in LEADHAND_HOME that replaces `leadhand` of XDG_STATE_HOME.
FALLBACK = "user"
_PRIVATE = 0o700
#: Files that define agents and tools, and the folders of flows and tools with the form of a file.
_FILES = ("agents.toml", "tools.toml")
_FOLDERS = (("flows", "*.json"), ("tools", "*.py"))


def state_folder(env: Mapping[str, str], cwd: Path | None = None) -> Path:
    """Returns the state folder of the services that a command uses; it may not exist yet.

    LEADHAND_HOME names it. By default there is one for each user, machine and LEADHAND_REDIS_URL,
    and a further one for each folder that defines agents, flows or tools, where `cwd` (by default
    the current folder) is that folder or beneath it. Raises UserStateUnfit.
    """
    named = env.get("LEADHAND_HOME")
    if named:
        return Path(named).absolute()
    ours = _state_home(env) / "leadhand"
    with usable(ours):
        redis_url = env.get("LEADHAND_REDIS_URL") or ""
        defining = folder_with_definitions(cwd or Path.cwd(), env)
        return ours / machine_id(ours) / set_name(redis_url, defining)


def shared_folder(home: Path, env: Mapping[str, str]) -> Path | None:
    """Returns the state folder of all folders without definitions; None if `home` is that itself.

    None also for a state folder that LEADHAND_HOME names.
    """
    name = set_name(env.get("LEADHAND_REDIS_URL") or "")
    is_own = not env.get("LEADHAND_HOME") and home.name.startswith(f"{name}-")
    return home.with_name(name) if is_own else None


def set_name(redis_url: str, defining: Path | None = None) -> str:
    """Returns the name of the state folder for a Redis and the folder of the definitions.

    It has a hash of the URL without its password, and one of the folder.

    >>> set_name(""), set_name("redis://:old@host:6379/0") == set_name("redis://:new@host:6379/0")
    ('default', True)
    >>> set_name("", Path("/project"))
    'default-ea0135bca5e3'
    """
    name = _name_of(redis_url)
    if defining is None:
        return name
    return f"{name}-{hashlib.sha256(bytes(defining)).hexdigest()[:12]}"


def _name_of(redis_url: str) -> str:
    if not redis_url:
        return OWN_REDIS
    parts = urlsplit(redis_url)
    where = f"{parts.scheme}://{parts.username or ''}@{parts.netloc.rpartition('@')[2]}"
    return hashlib.sha256(f"{where}{parts.path}?{parts.query}".encode()).hexdigest()[:16]


def bindings_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder of the bindings, created with mode 0700. Raises UserStateUnfit."""
    return _private_folder(env, "folders")


def hooks_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder in which hooks store files, with mode 0700. Raises UserStateUnfit."""
    return _private_folder(env, "hooks")


def approvals_file(env: Mapping[str, str]) -> Path:
    """Returns the path of the file with the user's approvals. Raises UserStateUnfit."""
    return hooks_folder(env) / "trusted.json"


def worktrees_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder of the worktrees and copies of tasks; it may not exist yet.

    Raises UserStateUnfit.
    """
    return _ours(env) / "worktrees"


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Converts an OSError in the block to UserStateUnfit, which names the folder."""
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


def folder_with_definitions(folder: Path, env: Mapping[str, str]) -> Path | None:
    """Returns the nearest folder with definitions, from `folder` up to its repository's root.

    Without a repository only the folder itself is looked at. The home folder and those above it are
    not: None then, and where nothing is defined.
    """
    for place in _places(folder.absolute(), env):
        if _defines_something(place):
            return place
    return None


def defining_folder(cwd: Path, env: Mapping[str, str]) -> Path | None:
    """Returns the folder whose definitions the services of commands in `cwd` read.

    With LEADHAND_HOME that is `cwd` itself: who names a state folder chooses who shares it. But a
    named set of the user reads the folder that it is for, and no other one.
    """
    named = env.get("LEADHAND_HOME")
    found = folder_with_definitions(cwd, env)
    if not named:
        return found
    unnamed = {name: text for name, text in env.items() if name != "LEADHAND_HOME"}
    try:
        own = state_folder(unnamed, cwd)
    except UserStateUnfit:
        return cwd
    home = Path(named).absolute()
    if home.parent != own.parent:
        return cwd
    return found if home == own else None


def _places(folder: Path, env: Mapping[str, str]) -> Iterator[Path]:
    home = Path(env.get("HOME") or "/").absolute()
    above = (folder, *folder.parents)
    root = next((place for place in above if (place / ".git").exists()), folder)
    for place in above:
        if place == home or place in home.parents:
            return
        yield place
        if place == root:
            return


def _defines_something(folder: Path) -> bool:
    try:
        if any((folder / name).is_file() for name in _FILES):
            return True
        return any(any((folder / name).glob(form)) for name, form in _FOLDERS)
    except OSError:  # not readable: then no service could read it either
        return False
