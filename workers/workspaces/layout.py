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

from app.domain.workspaces import Kind, folder_name
from workers.processes.own_folders import claim_folder
from workers.workspaces.git import Cancelled

_POLL_S = 0.05


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
    #: Whether the folder was complete once, so that work may be in it.
    ready: bool = False
    #: The session that works in it, and whether that had ended when a worker looked.
    session: str = ""
    over: bool = False


class Shelf(NamedTuple):
    """The folder with all tasks' folders of one repository, or of one plain folder."""

    folder: Path

    @classmethod
    def of(cls, root: Path, origin: Path) -> Shelf:
        """The shelf of a repository's common directory, or of a plain folder."""
        name = hashlib.sha256(os.fsencode(origin.resolve())).hexdigest()[:16]
        return cls(root.resolve() / name)

    def of_plan(self, plan: str) -> Path:
        return self.folder / plan

    def path(self, plan: str, task: str, run: int) -> Path:
        """The folder of one run of a task.

        >>> Shelf(Path("/w/ab")).path("5e551045", "parser", 2).name
        'parser~2'
        """
        return self.of_plan(plan) / folder_name(task, run)

    @contextmanager
    def locked(self, cancel: threading.Event) -> Iterator[int]:
        """Hold the lock of the repository; wait for it, unless cancelled."""
        claim_folder(self.folder.parent)
        claim_folder(self.folder)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _take(lock):
                if cancel.is_set():
                    raise Cancelled
                time.sleep(_POLL_S)
            yield lock
        finally:
            os.close(lock)


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def record_file(path: Path) -> Path:
    """The file, beside a task's folder, that records what the folder was made from."""
    return path.with_name(f"{path.name}.json")


def read_record(path: Path) -> Record | None:
    """The record of a folder; None if there is none, or none that can be read."""
    try:
        return Record.model_validate_json(record_file(path).read_bytes())
    except (OSError, ValidationError):
        return None


def write_record(path: Path, record: Record) -> None:
    """Write the record of a folder at once, or not at all."""
    claim_folder(path.parent)
    file = record_file(path)
    draft = file.with_name(f"{file.name}.draft")
    draft.write_text(record.model_dump_json())
    draft.replace(file)
