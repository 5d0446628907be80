"""Where the folders of tasks are: `ROOT/REPO-HASH/PLAN/TASK`, with a record beside each.

The record is written before anything is made, and says `ready` once the folder is complete. So a
worker that was killed in between leaves nothing that another could take for a finished folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from app.core.folders import Kind, folder_name
from workers.git.git import Cancelled
from workers.processes.nested_repositories import BY_PRODUCTS
from workers.processes.orphans import close_here, open_here
from workers.processes.user_folders import claim_folder

_POLL_S = 0.05
#: The folder of the marks, what separates the parts of their names, and the seconds after which one
#: without a record is removed.
_MARKS, _BETWEEN, _MARK_S = ".open", "|", 3600.0


class Record(BaseModel):
    """What a folder of a task is; stored in a file beside it."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    #: The folder that the plan works in.
    origin: str
    task: str
    run: int
    #: Of a worktree: its branch, the commit that it started from, and the branch or commit whose
    #: tip that was.
    branch: str = ""
    base: str = ""
    target: str = ""
    #: Where the session works in it: of a copy of a folder within a repository that git does not
    #: track, the path of that folder in the repository.
    prefix: str = ""
    #: Whether the folder was complete once, so that work may be in it.
    ready: bool = False
    #: Whether the worktree of a fork is open: set to the recorded state, and prepared.
    opened: bool = False
    #: The session that works in it, and whether that had ended when a worker looked.
    session: str = ""
    over: bool = False
    #: Whether its work was accepted and committed: what else is in the folder is not its work.
    accepted: bool = False
    #: The id of the store that has the session.
    store: str = ""
    #: The patterns of by-products, which are in no commit; None for the default ones.
    leave_out: tuple[str, ...] | None = None

    @property
    def by_products(self) -> tuple[str, ...]:
        """Return the patterns of by-products."""
        return BY_PRODUCTS if self.leave_out is None else self.leave_out


class Shelf(NamedTuple):
    """The folder with all tasks' folders of one repository, or of one plain folder."""

    folder: Path

    @classmethod
    def of(cls, root: Path, origin: Path) -> Shelf:
        """Return the folder that holds the worktrees of a repository, or the copies of a folder."""
        name = hashlib.sha256(os.fsencode(origin.resolve())).hexdigest()[:16]
        return cls(root.resolve() / name)

    def of_plan(self, plan: str) -> Path:
        """Return the folder that holds the task folders of a plan."""
        return self.folder / plan

    def path(self, plan: str, task: str, run: int) -> Path:
        """Return the path of the folder of one run of a task.

        >>> Shelf(Path("/w/ab")).path("5e551045", "parser", 2).name
        'parser~2'
        """
        return self.of_plan(plan) / folder_name(task, run)

    @contextmanager
    def locked(self, cancel: threading.Event) -> Iterator[int]:
        """Hold the repository's lock inside the block; wait for it first, unless cancelled."""
        claim_folder(self.folder.parent)
        claim_folder(self.folder)
        lock = open_here(self.folder / "lock")
        try:
            while not _take(lock):
                if cancel.is_set():
                    raise Cancelled
                time.sleep(_POLL_S)
            yield lock
        finally:
            close_here(lock)


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def record_file(path: Path) -> Path:
    """Returns the path of the file that records what a task's folder was made from."""
    return path.with_name(f"{path.name}.json")


def read_record(path: Path) -> Record | None:
    """Reads the record of how a task's folder was made; None if it is missing or invalid."""
    try:
        return Record.model_validate_json(record_file(path).read_bytes())
    except (OSError, ValidationError):
        return None


def write_record(path: Path, record: Record) -> None:
    """Writes the record of a task's folder atomically, and marks or unmarks it as in use."""
    claim_folder(path.parent)
    mark = _mark(path)
    if record.kind == "worktree" and not record.over:
        claim_folder(mark.parent)
        mark.touch()  # before the record: no record of an open worktree is without its mark
    file = record_file(path)
    draft = file.with_name(f"{file.name}.draft")
    draft.write_text(record.model_dump_json())
    draft.replace(file)
    if record.over:
        mark.unlink(missing_ok=True)


def reopen(path: Path) -> None:
    """Marks a worktree as in use again, if its record says that its session had ended."""
    record = read_record(path)
    if record is not None and (record.over or record.accepted):
        write_record(path, record.model_copy(update={"over": False, "accepted": False}))


def remove_record(path: Path) -> None:
    """Deletes the record of a removed folder, and the mark that it is in use."""
    record_file(path).unlink(missing_ok=True)
    _mark(path).unlink(missing_ok=True)


def open_worktrees(root: Path) -> Iterator[Path]:
    """Yields the worktrees of unended sessions, by marks; deletes old marks without a record.

    They are read from marks, of which there are as many as sessions at work: the folder keeps the
    records of all worktrees that were not cleaned.
    """
    for mark in _listed(root / _MARKS):
        shelf, plan, name = mark.name.split(_BETWEEN)
        path = root / shelf / plan / name
        if record_file(path).exists():
            yield path
        elif _is_old(mark):  # its record was never written, or was removed by hand
            mark.unlink(missing_ok=True)


def _mark(path: Path) -> Path:
    """The file that says that the session of a worktree had not ended."""
    root, (shelf, plan, name) = path.parents[2], path.parts[-3:]
    return root / _MARKS / _BETWEEN.join((shelf, plan, name))


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.name.count(_BETWEEN) == 2)
    except FileNotFoundError:
        return []


def _is_old(mark: Path) -> bool:
    try:
        return time.time() - mark.stat().st_mtime > _MARK_S
    except FileNotFoundError:
        return False
