"""Finds the lock file that stopped git, and whether a git that was killed left it behind."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from app.domain.merges import MERGE_FOLDER

#: What git says of a lock file. A setting's lock is named by the file that it locks.
_BLOCKED = re.compile(
    r"^.*?(?:[Uu]nable to create '(?P<lock>.+\.lock)'|could not lock config file (?P<config>.+))"
    r": File exists",
    re.MULTILINE,
)
#: The branches and refs in a repository that only Leadhand and its bodies move.
_OWN_REFS = (
    "refs/heads/leadhand/", "refs/leadhand/", "logs/refs/heads/leadhand/", "logs/refs/leadhand/",
)  # fmt: skip
#: Folders of git without lock files that stop a worktree.
_WITHOUT_LOCKS = frozenset({"objects"})


class Identity(NamedTuple):
    """Tells a lock file from a later one with the same name."""

    inode: int
    changed_ns: int


def blocking_lock(stderr: str, folder: Path) -> Path | None:
    """Returns the lock file for which git, called in a folder, could not work; None without one."""
    found = _BLOCKED.search(stderr)
    if found is None:
        return None
    return folder / (found["lock"] or f"{found['config']}.lock")


def identify(lock: Path) -> Identity | None:
    """Returns what tells a lock file from a later one; None if it does not exist."""
    try:
        status = lock.lstat()
    except OSError:
        return None
    return Identity(status.st_ino, status.st_mtime_ns)


def locks_of(path: Path, branch: str) -> list[Path]:
    """Lists the lock files in git's folder of a linked worktree, and those of its branch."""
    admin = _admin_of(path)
    if admin is None:
        return []
    common = _common_of(admin)
    names = (f"refs/heads/{branch}.lock", f"logs/refs/heads/{branch}.lock") if branch else ()
    return [*_locks_in(admin), *(common / one for one in names if (common / one).exists())]


def is_own(lock: Path) -> bool:
    """Whether a lock file is of a worktree or branch that Leadhand made."""
    if _trees_at(lock) is not None:
        return True
    git_dir = next((one for one in lock.parents if (one / "HEAD").is_file()), None)
    return git_dir is not None and str(lock.relative_to(git_dir)).startswith(_OWN_REFS)


def find_holders(locks: Collection[Path]) -> dict[Path, int]:
    """Returns the pids of processes that may hold these lock files, by file.

    That is a git in one of the folders where the lock can be taken, and each process that has the
    file open. Git closes some locks before it renames them.
    """
    folders = {lock: _trees_at(lock) or _trees_of_repository(lock) for lock in locks}
    names, found = {str(lock): lock for lock in locks}, dict[Path, int]()
    for process in psutil.process_iter(["name", "cwd"], ad_value=None):
        name, cwd = process.info["name"], process.info["cwd"]
        if cwd and (name or "").startswith("git"):
            below = [one for one in locks if _is_below(Path(cwd), folders[one])]
            found.update(dict.fromkeys(below, process.pid))
        with suppress(psutil.Error, OSError):
            opened = (names.get(file.path) for file in process.open_files())
            found.update({lock: process.pid for lock in opened if lock is not None})
    return found


def _is_below(cwd: Path, folders: list[Path]) -> bool:
    return any(cwd.is_relative_to(folder) for folder in folders)


def _trees_at(lock: Path) -> list[Path] | None:
    """Leadhand's worktree to whose folder of git the lock belongs; None for another lock."""
    for admin in lock.parents:
        if not (admin / "commondir").is_file():
            continue
        tree = _tree_of(admin)
        if tree is None:
            return None
        # Leadhand keeps a record beside each of its worktrees (layout.py), except that of merges.
        is_own = tree.name == MERGE_FOLDER or tree.with_name(f"{tree.name}.json").is_file()
        return [tree.resolve(), admin.resolve()] if is_own else None
    return None


def _trees_of_repository(lock: Path) -> list[Path]:
    """All folders in which a git may work that takes a lock of the shared repository."""
    common = next((one for one in lock.parents if (one / "objects").is_dir()), lock.parent)
    trees = [_tree_of(admin) for admin in common.glob("worktrees/*")]
    main = common.parent if common.name == ".git" else common
    return [one.resolve() for one in (main, common, *trees) if one is not None]


def _admin_of(path: Path) -> Path | None:
    """Git's folder of a linked worktree; None for another folder."""
    try:
        text = (path / ".git").read_text()
    except OSError:
        return None
    admin = path / text.removeprefix("gitdir:").strip()
    return admin if (admin / "commondir").is_file() else None


def _common_of(admin: Path) -> Path:
    return (admin / (admin / "commondir").read_text().strip()).resolve()


def _tree_of(admin: Path) -> Path | None:
    try:
        return (admin / (admin / "gitdir").read_text().strip()).parent
    except OSError:
        return None


def _locks_in(admin: Path) -> Iterator[Path]:
    for above, names, files in os.walk(admin):
        names[:] = [name for name in names if name not in _WITHOUT_LOCKS]
        yield from (Path(above, name) for name in files if name.endswith(".lock"))
