"""A private copy of a state folder, on which an import works: nothing in the folder changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from leadhand.cli.imports.in_place import OTHER_REDIS, require_unused, stop_all, wait_until_unused
from leadhand.cli.imports.marks import name_of
from leadhand.errors import LeadhandError
from leadhand.local import file_locks
from leadhand.local import state_dir as home_folder
from leadhand.local.bindings import (
    begin_import,
    find_binding,
    forget_binding,
    require_own_history,
)
from leadhand.local.connect import ensure
from leadhand.local.errors import StackElsewhere
from leadhand.local.redis_choice import RECORD
from leadhand.local.running import end_services, read_run
from leadhand.local.user_state import imports_folder

#: What the copy has of the folder. Links in spill files stay links.
_DATA = ("appendonlydir", "appendonly.aof", "dump.rdb")
_FILES = ("artifacts", "spill")
_SECRETS = ("id", "secrets.json")


class Opened(NamedTuple):
    """The copy while its Redis runs, with all of its sessions at rest."""

    home: Path
    redis_url: str
    secret: str
    is_own: bool


@contextmanager
def opened_copy(
    folder: Path, env: Mapping[str, str], say: Callable[[str], None], *, adopt: bool
) -> Iterator[Opened]:
    """Yields a running copy of a state folder with all sessions stopped; deletes it at the end.

    With `adopt` a folder is accepted that others may have written. Raises FolderUnfit,
    FolderNotBound, UserStateUnfit, StackNotStarted, StackElsewhere.
    """
    is_own = _is_own(folder, env)
    if not is_own and not adopt:
        require_own_history(folder, env)
    require_unused(folder)
    say(f"opening a copy of {folder}")
    with _at_work(folder, env) as home:
        with home_folder.fit(home):
            _copy(folder.resolve(), home)
        binding = begin_import(home, env)
        if is_own:  # otherwise it may name a program that somebody else put there
            _copy_one(folder.resolve() / "redis" / RECORD, home / "redis" / RECORD)
        own = {name: text for name, text in env.items() if name not in OTHER_REDIS}
        own["LEADHAND_LINGER"] = "0"
        with ensure(home, env=own, importing=True) as connection:
            stop_all(connection, say)
            yield Opened(home, read_run(home)["redis_url"], binding.secret, is_own)
        wait_until_unused(home)


def _is_own(folder: Path, env: Mapping[str, str]) -> bool:
    """Whether this user created or imported the folder here."""
    try:
        binding = find_binding(folder, env)
    except LeadhandError:  # a link, another user's, or tracked by git
        return False
    return binding is not None and not binding.importing


@contextmanager
def _at_work(folder: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """An empty folder for the copy; what a killed import left of it is gone."""
    home = imports_folder(env) / name_of(folder)
    with home_folder.fit(home):
        lock = file_locks.open_lock(home.with_suffix(".lock"))
    try:
        if not file_locks.take(lock):
            why = "another `leadhand import` works on it"
            raise StackElsewhere(str(folder), why, "wait until that one has ended")
        _discard(home, env)
        home.mkdir(mode=0o700)
        yield home
        _discard(home, env)
    finally:
        os.close(lock)


def _discard(home: Path, env: Mapping[str, str]) -> None:
    if home.exists():
        end_services(home)
        forget_binding(home, env)
        shutil.rmtree(home)


def _copy(folder: Path, home: Path) -> None:
    (home / "redis").mkdir(mode=0o700)
    for name in _DATA:
        _copy_one(folder / "redis" / name, home / "redis" / name)
    for name in _SECRETS:
        _copy_one(folder / name, home / name)
    for name in _FILES:
        if (folder / name).is_dir():
            shutil.copytree(folder / name, home / name, symlinks=True)


def _copy_one(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, target)
    elif path.is_file():
        shutil.copyfile(path, target)
