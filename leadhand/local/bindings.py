"""Binds a state folder to the user and the place where it was created.

A state folder has sessions, which run commands. So a folder that came with a clone, a copy or an
archive must not be opened like one that this user created. The user's own folder has a binding file
for each state folder, named by the random id in the state folder. It has that folder's path and
inode, and the secrets that sign its programs. The state folder has none of these, so a copy of it
proves nothing.

A folder matches its binding if the id and inode match, and the device or the real path. So it may
be moved, and devices may get other numbers after a reboot; a copy has another inode.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from leadhand.local import file_locks, user_state
from leadhand.local import state_dir as home_folder
from leadhand.local.errors import FolderNotBound, FolderUnfit
from leadhand.models.git_tracking import is_tracked

_ID = re.compile(r"[0-9a-f]{32}")
_IMPORT = (
    "`leadhand import` lists the sessions in it and imports them, stopped; "
    "or remove the folder to start with none"
)
#: The state folder of a working folder, in versions before the services of a user.
OLD = ".leadhand"


class Binding(BaseModel):
    """The binding file of one state folder."""

    model_config = ConfigDict(frozen=True)

    #: The real path of the state folder.
    home: str
    device: int
    inode: int
    secret: str
    api_token: str
    #: An import is not finished: no worker may start here.
    importing: bool = False


def require_bound(home: Path, env: Mapping[str, str], *, importing: bool = False) -> Binding:
    """Returns the record that a state folder is this user's; creates folder and record if missing.

    Raises FolderUnfit, FolderNotBound, UserStateUnfit.
    """
    _require_presentable(home, env)
    records = user_state.bindings_folder(env)
    binding = _find(home, records) or _bind_new(home, records)
    if binding.importing and not importing:
        raise _not_bound(home, "its import was not finished", "run `leadhand import` again")
    return binding


def find_binding(home: Path, env: Mapping[str, str]) -> Binding | None:
    """Returns the record that this user created the state folder on this machine, or else None."""
    _require_presentable(home, env)
    return _find(home, user_state.bindings_folder(env))


def begin_import(home: Path, env: Mapping[str, str]) -> Binding:
    """Records a state folder from elsewhere as this user's; no worker may start in it yet.

    The folder may also be of an older version.
    An existing binding is kept. Raises FolderUnfit, FolderNotBound, UserStateUnfit.
    """
    _require_presentable(home, env)
    records = user_state.bindings_folder(env)
    with _locked(records):
        binding = _find(home, records)
        if binding is not None:
            return binding
        with home_folder.fit(home):
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            _disarm(home)
            known = home_folder.read_fields(home / "secrets.json") or _secrets_of_original(
                home, records
            )
        return _write(home, records, known, importing=True)


def finish_import(home: Path, env: Mapping[str, str]) -> None:
    """Marks the import of a state folder as finished: workers may run. Deletes its old secrets."""
    records = user_state.bindings_folder(env)
    with _locked(records):
        binding = _find(home, records)
        if binding is not None:
            _keep(records, _id_of(home), binding.model_copy(update={"importing": False}))
            (home / "secrets.json").unlink(missing_ok=True)


def forget_binding(home: Path, env: Mapping[str, str]) -> None:
    """Delete the record that a state folder is this user's, before the folder is deleted."""
    records = user_state.bindings_folder(env)
    with _locked(records):
        if _find(home, records) is not None:
            (records / f"{_id_of(home)}.json").unlink(missing_ok=True)


def require_own_history(home: Path, env: Mapping[str, str]) -> None:
    """Raise FolderNotBound or FolderUnfit for a folder that others may have written.

    That is a link, another user's folder, one that git tracks, or one with such a file in it.
    """
    hint = "if you trust what is in it: `leadhand import --adopt`"
    try:
        home_folder.require_own(home)
    except FolderUnfit as error:
        raise _not_bound(home, error.why, hint) from None
    if is_tracked(home, env):
        raise _not_bound(home, "git tracks it, so others may have written it", hint)
    for path in home.rglob("*"):
        if path.is_symlink():
            raise _not_bound(home, f"it holds a symbolic link, {path.name!r}", hint)
        if path.lstat().st_uid != os.getuid():
            raise _not_bound(home, f"{path.name!r} in it belongs to another user", hint)


def _require_presentable(home: Path, env: Mapping[str, str]) -> None:
    home_folder.require_own(home)
    if is_tracked(home, env):
        hint = f"take it out of the repository with `git rm -r --cached {home.name}`"
        raise _not_bound(home, "git tracks it, so it may run the commands of others", hint)


def _find(home: Path, records: Path) -> Binding | None:
    """The binding that matches the folder; its path and device are updated."""
    name = _id_of(home)
    binding = _read(records, name)
    if binding is None:
        return None
    found, path = home.lstat(), str(home.resolve())
    same_device, same_path = binding.device == found.st_dev, binding.home == path
    if binding.inode != found.st_ino or not (same_device or same_path):
        return None
    if same_device and same_path:
        return binding
    moved = binding.model_copy(update={"home": path, "device": found.st_dev})
    _keep(records, name, moved)
    return moved


def _bind_new(home: Path, records: Path) -> Binding:
    """Bind a folder that does not exist or is empty, under a lock."""
    with _locked(records):
        binding = _find(home, records)
        if binding is not None:
            return binding
        with home_folder.fit(home):
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            used = [path.name for path in home.iterdir() if not _is_blank(path)]
        if used:
            raise _not_bound(home, _why_foreign(home, records), _way_out(home))
        return _write(home, records, {}, importing=False)


def _write(
    home: Path, records: Path, known: Mapping[str, str | int | float], *, importing: bool
) -> Binding:
    """Write the binding, then the folder's id: an id without a binding means nothing."""
    found = home.lstat()
    binding = Binding(
        home=str(home.resolve()),
        device=found.st_dev,
        inode=found.st_ino,
        secret=str(known.get("secret") or secrets.token_urlsafe(32)),
        api_token=secrets.token_urlsafe(32),
        importing=importing,
    )
    name = secrets.token_hex(16)
    _keep(records, name, binding)
    with home_folder.fit(home):
        home_folder.write_whole(home / "id", name + "\n")
    return binding


def _keep(records: Path, name: str, binding: Binding) -> None:
    with user_state.usable(records):
        home_folder.write_fields(records / f"{name}.json", binding.model_dump())


def _read(records: Path, name: str) -> Binding | None:
    try:
        return Binding.model_validate(home_folder.read_fields(records / f"{name}.json"))
    except ValidationError:
        return None


def _id_of(home: Path) -> str:
    """The folder's id; '' if it has none."""
    try:
        opened = os.open(home / "id", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            found = file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return found if _ID.fullmatch(found) else ""


def _secrets_of_original(home: Path, records: Path) -> dict[str, str | int | float]:
    """The secrets of the folder that this one is a copy of, if this user has them."""
    original = _read(records, _id_of(home))
    return {} if original is None else {"secret": original.secret}


def _disarm(home: Path) -> None:
    """Raise FolderNotBound for a link in the folder; delete its record of the Redis program."""
    for path in (*home.glob("*"), *home.glob("log/*"), *home.glob("redis/**/*")):
        if path.is_symlink():
            hint = "remove the link if you trust the rest, and run `leadhand import` again"
            raise _not_bound(home, f"it holds a symbolic link, {path.name!r}", hint)
    (home / "redis" / "server.json").unlink(missing_ok=True)


def _is_blank(path: Path) -> bool:
    """Whether the file is one that an interrupted binding leaves."""
    known = {"id", ".gitignore", user_state.FALLBACK}
    return path.name in known or path.name.startswith("id.")


def _why_foreign(home: Path, records: Path) -> str:
    original = _read(records, _id_of(home))
    if original is not None:
        return f"it is a copy of {original.home!r}, or was restored in its place"
    if _id_of(home):
        return "it was not created by this user on this machine"
    return "it was created by an earlier version of Leadhand, or came with the folder"


def _way_out(home: Path) -> str:
    """How to use the sessions of a folder that is not bound."""
    if (home / OLD).is_dir():
        return f"LEADHAND_HOME names the state folder itself, which is {str(home / OLD)!r}"
    return _IMPORT


def _not_bound(home: Path, why: str, hint: str) -> FolderNotBound:
    return FolderNotBound(str(home), why, hint)


@contextmanager
def _locked(records: Path) -> Iterator[None]:
    """Hold this user's lock on bindings."""
    with user_state.usable(records):
        lock = file_locks.open_lock(records / "lock")
    try:
        with user_state.usable(records):
            file_locks.wait(lock)
        yield
    finally:
        os.close(lock)
