"""What a step about folders reads and changes in the store, while its attempt has its lease."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from app import folders
from app.core.states import ENDED, SessionStatus
from app.engine import Engine
from app.folders import StoreFolders
from app.sessions.attempts import Work
from workers.attempt.heartbeat import Lease
from workers.attempt.settle import retry_while_away
from workers.folders.protected import Records, Taken
from workers.git.git import Cancelled, WorkspaceRefused
from workers.task import BodyTask


class FolderRecords:
    """The records of folders; each call is repeated while the store is away."""

    def __init__(self, engine: Engine, lease: Lease, work: Work) -> None:
        self._engine = engine
        self._work = work
        self._lease = lease

    def record(self, fields: Mapping[str, JsonValue]) -> None:
        """Store what was done with the folder of a plan's task, or of a session."""
        record = folders.record_of_task if "plan" in fields else folders.record_own
        if "work" in fields:
            record = partial(folders.record_work, ref=self._lease.ref)
        retry_while_away(lambda: record(self._engine, fields=fields), self._lease)

    def recorded_work(self) -> str | None:
        """Read the digest of the session's work as its last doer left it; None if unknown."""
        attempts, work = self._engine.attempts, self._work
        return retry_while_away(
            lambda: attempts.folder_state(work.ref, owner=work.owner).work, self._lease
        )

    def protected(self, folder: str | None) -> Records | None:
        """Return how to read and store protected files of the session, if it has a folder."""
        attempts, ref, lease = self._engine.attempts, self._lease.ref, self._lease

        def read(at: str) -> Taken:
            found = retry_while_away(lambda: attempts.taken_files(ref, at), lease)
            return Taken() if found is None else Taken(*found)

        def take(at: str, packed: str) -> None:
            retry_while_away(lambda: attempts.take_files(ref, at, packed), lease)

        return None if folder is None else Records(Path(folder), read, take)

    def reserve(
        self, session: str, statuses: Collection[SessionStatus], hold_s: float
    ) -> str | None:
        """Keep a session from resuming; returns '' if kept, its status if refused, None if lost.

        Returns '' if the session is reserved; None if the attempt is lost.
        """
        return retry_while_away(
            lambda: folders.reserve(self._engine, session, statuses, hold_s), self._lease
        )

    def release(self, session: str) -> None:
        """End the reservation of a session's folder, so that the session can be resumed."""
        retry_while_away(lambda: folders.release(self._engine, session), self._lease)

    def stored(self, sessions: Sequence[str]) -> StoreFolders | None:
        """Read this host's recorded folders and session statuses; None if the lease is lost."""
        place = self._engine.settings.place
        return retry_while_away(
            lambda: folders.read_at_place(self._engine, place, sessions), self._lease
        )


def worktrees_root(task: BodyTask) -> Path:
    """Returns this worker's folder for worktrees and copies. Raises WorkspaceRefused."""
    if task.worktrees is None:
        raise WorkspaceRefused("this worker has no folder for worktrees")
    return task.worktrees


def removable(*, force: bool) -> frozenset[SessionStatus]:
    """Returns the session statuses that permit removing its folder; stopped only with `force`."""
    return ENDED if force else ENDED - {SessionStatus.STOPPED}


@contextmanager
def reserved(task: BodyTask, session: str, statuses: Collection[SessionStatus]) -> Iterator[None]:
    """Prevents a session from being resumed inside the block. Raises WorkspaceRefused.

    Hold the lock of the folder first: only its holder reserves.
    """
    status = task.reserve(session, statuses, task.timeout_s)
    if status is None:
        raise Cancelled
    if status:
        raise WorkspaceRefused(f"its session is {status}")
    try:
        yield
    finally:
        task.release(session)
