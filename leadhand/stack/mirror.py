"""JSON files of workflow sessions: copies of what the API keeps, for people to read."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from leadhand.local import file_locks
from leadhand.models.stacks import StackChange, WorkflowSession
from leadhand.stack.moving import write_origin
from leadhand.stack.scope import Scope

log = logging.getLogger("leadhand.stack")

#: Where the files are, below the root of a project.
FILES = Path(".deepwork", "tmp")
_LOCK = ".lock"


class Mirror:
    """The files of one folder. A file that cannot be written is logged: the API has the truth."""

    def __init__(self, folder: Path, scope: Scope | None = None) -> None:
        self.folder = folder
        #: The stack whose files they are, if they are written.
        self._scope = scope

    def path(self, session: str) -> Path:
        """Return the path of the file of a workflow session."""
        return self.folder / f"session_{session}.json"

    def write(self, sessions: Iterable[WorkflowSession]) -> None:
        """Write the JSON files of these workflow sessions that are missing, corrupt or older."""
        try:
            with self._locked():
                for session in sessions:
                    self._write(session)
                if self._scope is not None:
                    write_origin(self.folder, self._scope)
        except OSError as error:
            log.warning("files of workflow sessions are not written: %s", error)

    def remove(self, session: str) -> None:
        """Delete the file of a workflow session."""
        try:
            self.path(session).unlink(missing_ok=True)
        except OSError as error:
            log.warning("the file of workflow session %s stays: %s", session, error)

    def read(self, session: str) -> WorkflowSession | None:
        """Read a workflow session from its file; None if it cannot be read."""
        try:
            found = WorkflowSession.from_dict(json.loads(self.path(session).read_bytes()))
        except (OSError, ValueError, RecursionError, ValidationError):
            return None
        return found if found.session_id == session else None

    def read_all(self) -> list[WorkflowSession]:
        """Read all workflow sessions that have a valid file."""
        names = sorted(path.stem for path in self.folder.glob("session_*.json"))
        found = (self.read(name.removeprefix("session_")) for name in names)
        return [session for session in found if session is not None]

    def _write(self, session: WorkflowSession) -> None:
        path = self.path(session.session_id)
        existing = self.read(session.session_id)
        if existing is not None and existing.revision >= session.revision:
            return
        draft = path.with_name(f".{path.name}.new")
        draft.write_text(json.dumps(session.to_dict(), indent=2, ensure_ascii=False) + "\n")
        draft.replace(path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock, so that no process writes an older file over a newer one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = file_locks.open_lock(self.folder / _LOCK)
        try:
            file_locks.wait(lock)
            yield
        finally:
            with suppress(OSError):
                os.close(lock)


def update_files(scope: Scope, change: StackChange, removed: str = "") -> None:
    """Updates the JSON files of a folder's stack after a change, if the folder has any."""
    files = None if scope.folder is None else Path(scope.folder, FILES)
    if files is None or not files.is_dir():
        return
    if removed:
        Mirror(files).remove(removed)
    if change.workflow is not None:
        Mirror(files, scope).write([change.workflow])
