"""Nested workflows of an agent on a stack that the API keeps, with the names of the seed.

The folder of JSON files has the path and host of the stack that they belong to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from pydantic import ValidationError

from leadhand.client.client import Client
from leadhand.errors import (
    LeadhandError,
    NoActiveWorkflow,
    StackRefused,
    WorkflowNotStacked,
    WorkflowUnknown,
)
from leadhand.local import processes
from leadhand.models.patterns import AGENT_SESSION, NAME, form_of
from leadhand.models.stacks import (
    WORKFLOW_ID,
    StackChange,
    StackedWorkflow,
    StackEntry,
    StackView,
    StepProgress,
    WorkflowSession,
    agent_stack,
    entries_of,
    folder_stack,
    moved_name,
    place_of_host,
)
from leadhand.settings import ClientSettings

_ORIGIN = ".stack"
log = logging.getLogger("leadhand.stack")
#: Where the files are, below the root of a project.
FILES = Path(".deepwork", "tmp")
_LOCK = ".lock"
T = TypeVar("T")
_NONE_ACTIVE = "No active workflow session. Use start_workflow to begin one."
_PAGE = 500
__all__ = ["StackEntry", "StateError", "StateManager", "StepProgress", "WorkflowSession"]


class StateError(LeadhandError):
    """No workflow session is active, or the named one is unknown or not on the stack."""


class Scope(NamedTuple):
    """The name of a stack; of a folder's stack, also the folder and the host that has it."""

    stack: str
    folder: str | None = None
    place: str | None = None


def find_scope(folder: Path, name: str | None = None, *, agent_session: str | None = None) -> Scope:
    """Returns the stack of a folder, or the one with this name. Raises ValueError.

    With `agent_session` it is the one that this session of an agent has beside that.
    """
    if agent_session is not None:
        if not re.fullmatch(AGENT_SESSION, agent_session):
            raise ValueError(
                f"{agent_session[:80]!r} is no agent session; give {form_of(AGENT_SESSION)}"
            )
        found = find_scope(folder, name)
        return found._replace(stack=agent_stack(found.stack, agent_session))
    if name is not None:
        if not re.fullmatch(NAME, name):
            raise ValueError(f"{name[:80]!r} cannot name a stack; give {form_of(NAME)}")
        return Scope(name)
    place, path = _place(), str(folder.resolve())
    return Scope(folder_stack(place, path), path, place)


def _place() -> str:
    """LEADHAND_PLACE, or else the name of the host, in the form of a place's name."""
    named = ClientSettings.from_env().place
    return named if named is not None else place_of_host(socket.gethostname())


class Origin(NamedTuple):
    """The folder whose stack the files belong to, and its host."""

    folder: str
    place: str
    #: The folder where the file system of `folder` is mounted.
    mount: str = "/"


def write_origin(files: Path, scope: Scope) -> None:
    """Record to which folder's stack the files belong. Raises OSError."""
    if scope.folder is None or scope.place is None:
        return
    wanted = Origin(scope.folder, scope.place, _mount_of(Path(scope.folder)))
    if read_origin(files) == wanted:
        return
    draft = files / f"{_ORIGIN}.new"
    draft.write_text(json.dumps(wanted._asdict()) + "\n", encoding="utf-8")
    draft.replace(files / _ORIGIN)


def read_origin(files: Path) -> Origin | None:
    """Return to which folder's stack the files belong; None if that is not known."""
    try:
        found = json.loads((files / _ORIGIN).read_bytes())
        return Origin(str(found["folder"]), str(found["place"]), str(found["mount"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def adopt_stacks(client: Client, files: Path, scope: Scope) -> str | None:
    """Move the stacks of the folder's former path here if that is gone.

    Returns a sentence if the files belong to the stack of another folder, and stay there.
    """
    origin = read_origin(files)
    if origin is None or scope.folder is None or origin[:2] == (scope.folder, scope.place):
        return None
    command = f"`leadhand stack move {origin.folder}` moves it here"
    if origin.place != scope.place:
        return f"the files belong to the stack of {origin.folder} on the host {origin.place}"
    if not os.path.ismount(origin.mount):
        why = f"{origin.mount}, where that is, is not mounted"
        return f"the files belong to the stack of {origin.folder}, and {why}; {command}"
    if not _is_gone(Path(origin.folder)):
        return f"this is a copy of {origin.folder}, to whose stack the files belong; {command}"
    try:
        move_stacks(client, origin, scope)
        write_origin(files, scope)
    except (LeadhandError, OSError) as error:
        return f"the files belong to the stack of {origin.folder}, which is gone: {error}"
    return None


def move_stacks(client: Client, origin: Origin, scope: Scope) -> int:
    """Move the stack of a folder, and those of agent sessions beside it, to another folder.

    Returns how many were moved. Raises StackRefused if the other folder has one already.
    """
    old, new = (folder_stack(*one) for one in ((origin.place, origin.folder), _home(scope)))
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        page = client.stacks(limit=100, cursor=cursor)
        names = ((head.name, moved_name(head.name, old, new)) for head in page.items)
        found += [(name, to) for name, to in names if to is not None]
        cursor = page.next
        if cursor is None:
            break
    for name, to in sorted(found):
        client.move_stack(name, to, folder=scope.folder, place=scope.place)
    return len(found)


def _mount_of(folder: Path) -> str:
    """The folder where a folder's file system is mounted."""
    return str(next(above for above in (folder, *folder.parents) if os.path.ismount(above)))


def _is_gone(folder: Path) -> bool:
    """Whether there is no such path; one that cannot be read is there."""
    try:
        folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _home(scope: Scope) -> tuple[str, str]:
    return str(scope.place), str(scope.folder)


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
        lock = processes.open_lock(self.folder / _LOCK)
        try:
            processes.wait(lock)
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


class _Changed(NamedTuple):
    """What a change did, and the workflow session that was active right after it."""

    made: StackChange
    active: WorkflowSession | None


class StateManager:
    """The workflow sessions of a project, nested on a stack. The API keeps them.

    All processes that use one folder share its stack. Each change is atomic, and written to the
    folder's JSON files too. Methods with `session_id` are about that workflow session, anywhere in
    the stack, and otherwise about the active one.

    A session object is updated in place by later calls. Methods that are not asynchronous ask the
    API too, and block the event loop meanwhile.
    """

    def __init__(
        self, project_root: Path | str, *, scope: str | None = None, client: Client | None = None
    ) -> None:
        """Nothing is read or written until the first call.

        Args:
            project_root: The folder of the project.
            scope: The name of another stack than the folder's.
            client: Calls the API; by default one is opened at the first call. The caller closes it.
        """
        self.project_root = Path(project_root)
        self.sessions_dir = self.project_root / FILES
        #: The stack as of the last call, from the bottom to the top.
        self._session_stack: list[WorkflowSession] = []
        self._lock = asyncio.Lock()
        self._scope = find_scope(self.project_root, scope)
        self._mirror = Mirror(self.sessions_dir, self._scope)
        #: Whether the files were looked at: they may be those of a folder that was renamed.
        self._is_adopted = False
        #: Why the files belong to the stack of another folder; None if they do not.
        self._foreign: str | None = None
        self._given = client
        self._opened: Client | None = None
        self._opening = Lock()
        #: Held while the view changes: calls run in several threads.
        self._viewing = Lock()
        #: The version of the view, and how often it was replaced.
        self._version = 0
        self._replaced = 0
        self._objects: WeakValueDictionary[str, WorkflowSession] = WeakValueDictionary()

    def close(self) -> None:
        """Close the client that this manager opened."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # Workflow sessions

    async def create_session(
        self,
        job_name: str,
        workflow_name: str,
        goal: str,
        first_step_id: str,
        instance_id: str | None = None,
    ) -> WorkflowSession:
        """Start a workflow session on top of the stack, which makes it the active one."""
        change = await self._change(
            lambda client: client.start_workflow(
                self._scope.stack,
                job_name,
                workflow_name,
                first_step_id,
                goal=goal,
                instance_id=instance_id,
                folder=self._scope.folder,
                place=self._scope.place,
            )
        )
        return self._of(change)

    async def load_session(self, session_id: str) -> WorkflowSession:
        """Make a workflow session the active one, in place of the one on top of the stack.

        One that the API does not know is imported from its JSON file. Raises StateError if there
        is neither.
        """
        if not re.fullmatch(WORKFLOW_ID, session_id):
            raise StateError(f"Session not found: {session_id}")

        def load(client: Client) -> StackChange:
            record = self._mirror.read(session_id)
            try:
                return client.load_workflow(self._scope.stack, session_id, record, force=True)
            except StackRefused as error:
                raise StateError(self._foreign or str(error)) from None

        return self._of(await self._change(load))

    async def complete_workflow(self, session_id: str | None = None) -> WorkflowSession | None:
        """Mark a workflow session as completed; returns the new active one, or None."""
        stack, named = self._scope.stack, _named(session_id)
        change = await self._change(lambda client: client.complete_workflow(stack, workflow=named))
        return change.active

    async def abort_workflow(
        self, explanation: str, session_id: str | None = None
    ) -> tuple[WorkflowSession, WorkflowSession | None]:
        """Mark a workflow session as aborted; returns it, and the new active one or None."""
        stack, named = self._scope.stack, _named(session_id)
        change = await self._change(
            lambda client: client.abort_workflow(stack, explanation, workflow=named)
        )
        return self._of(change), change.active

    async def delete_session(self, session_id: str) -> None:
        """Delete a workflow session and its file, and take it off the stack."""

        def delete(client: Client) -> StackView:
            try:
                return client.delete_workflow(self._scope.stack, session_id).stack
            except WorkflowUnknown:
                return client.stack(self._scope.stack)

        if not re.fullmatch(WORKFLOW_ID, session_id):
            return
        async with self._lock:
            await asyncio.to_thread(self._refresh, delete)
            await asyncio.to_thread(self._mirror.remove, session_id)
            self._session_stack[:] = [
                one for one in self._session_stack if one.session_id != session_id
            ]

    async def list_sessions(self) -> list[WorkflowSession]:
        """Return all workflow sessions of the stack, also ended ones, newest first.

        Those of JSON files that the API does not know are included; corrupt files are skipped.
        """
        async with self._lock:
            return await asyncio.to_thread(self._list)

    async def find_active_sessions_for_workflow(
        self, job_name: str, workflow_name: str
    ) -> list[WorkflowSession]:
        """Return the active workflow sessions of a workflow."""
        wanted = (job_name, workflow_name, "active")
        found = await self.list_sessions()
        return [one for one in found if (one.job_name, one.workflow_name, one.status) == wanted]

    # Steps

    async def start_step(self, step_id: str, session_id: str | None = None) -> None:
        """Record the start of a step, which becomes the current one."""
        stack, named = self._scope.stack, _named(session_id)
        await self._change(lambda client: client.start_step(stack, step_id, workflow=named))

    async def complete_step(
        self,
        step_id: str,
        outputs: Mapping[str, Any] | None = None,
        notes: str | None = None,
        session_id: str | None = None,
    ) -> None:
        """Record the end of a step with its outputs and notes."""
        stack, named = self._scope.stack, _named(session_id)
        await self._change(
            lambda client: client.complete_step(stack, step_id, outputs, notes, workflow=named)
        )

    async def record_quality_attempt(self, step_id: str, session_id: str | None = None) -> int:
        """Add 1 to the quality attempts of a step; returns their number."""
        stack, named = self._scope.stack, _named(session_id)
        change = await self._change(
            lambda client: client.record_quality_attempt(stack, step_id, workflow=named)
        )
        return change.made.quality_attempts or 0

    async def advance_to_step(
        self, step_id: str, entry_index: int, session_id: str | None = None
    ) -> None:
        """Make another step the current one: a later or an earlier one."""
        stack, named = self._scope.stack, _named(session_id)
        await self._change(
            lambda client: client.advance_to_step(stack, step_id, entry_index, workflow=named)
        )

    # The stack

    def get_active_session(self) -> WorkflowSession | None:
        """Return the workflow session on top of the stack, or None."""
        self._refresh()
        return self._top()

    def require_active_session(self) -> WorkflowSession:
        """Return the workflow session on top of the stack. Raises StateError."""
        active = self.get_active_session()
        if active is None:
            raise StateError(_NONE_ACTIVE)
        return active

    def get_stack(self) -> list[StackEntry]:
        """Return the lines of the stack, from the bottom to the top."""
        self._refresh()
        return entries_of(self._session_stack)

    def get_stack_depth(self) -> int:
        """Return the number of workflow sessions on the stack."""
        self._refresh()
        return len(self._session_stack)

    def get_all_outputs(self, session_id: str | None = None) -> dict[str, Any]:
        """Merge the outputs of all completed steps; later steps override earlier ones."""
        return self._resolve_session(session_id).merge_outputs()

    def _resolve_session(self, session_id: str | None = None) -> WorkflowSession:
        """The named workflow session on the stack, or the active one. Raises StateError."""
        if session_id is None:
            return self.require_active_session()
        self._refresh()
        for one in self._session_stack:
            if one.session_id == session_id:
                return one
        raise _not_stacked(session_id)

    # Files

    async def _save_session(self, session: WorkflowSession) -> None:
        """Write the JSON file of a workflow session, with the lock."""
        async with self._lock:
            await self._save_session_unlocked(session)

    async def _save_session_unlocked(self, session: WorkflowSession) -> None:
        """Write the JSON file of a workflow session; the caller holds the lock."""
        await asyncio.to_thread(self._mirror.write, [session])

    # Calls

    async def _change(self, call: Callable[[Client], StackChange]) -> _Changed:
        """Change the stack, then update the view and the files. Raises StateError."""
        done: list[StackChange] = []

        def change(client: Client) -> StackView:
            done.append(call(client))
            if done[0].workflow is not None:
                self._mirror.write(self._adopt([done[0].workflow]))
            return done[0].stack

        async with self._lock:
            on_stack = await asyncio.to_thread(self._refresh, change)
        return _Changed(done[0], on_stack[-1] if on_stack else None)

    def _refresh(self, call: Callable[[Client], StackView] | None = None) -> list[WorkflowSession]:
        """Update the view of the stack, from a call or by asking, and its files.

        Returns the workflow sessions on the stack at the time of the call.
        """
        before = self._replaced
        with _translated():
            client = self._client()
            self._adopt_files(client)
            view = client.stack(self._scope.stack) if call is None else call(client)
            found = [self._up_to_date(client, one) for one in view.workflows]
        on_stack = [one for one in found if one is not None]
        with self._viewing:
            # A thread that asked earlier may come later; after a loss Redis counts from 1 again.
            if view.version >= self._version or self._replaced == before:
                self._session_stack[:] = on_stack
                self._version, self._replaced = view.version, self._replaced + 1
                self._mirror.write(on_stack)
        return on_stack

    def _adopt_files(self, client: Client) -> None:
        """Move the stack of the folder's former path here, once, if the folder was renamed."""
        if self._is_adopted:
            return
        self._foreign = adopt_stacks(client, self.sessions_dir, self._scope)
        self._is_adopted = True
        if self._foreign is not None:
            log.warning("%s", self._foreign)

    def _up_to_date(self, client: Client, shown: StackedWorkflow) -> WorkflowSession | None:
        """The object of a workflow session on the stack; None if it was deleted meanwhile."""
        known = self._objects.get(shown.session_id)
        if known is not None and known.revision >= shown.revision:
            return known
        try:
            return self._adopt([client.stack_workflow(self._scope.stack, shown.session_id)])[0]
        except WorkflowUnknown:
            return None

    def _list(self) -> list[WorkflowSession]:
        listed: list[WorkflowSession] = []
        cursor = None
        with _translated():
            self._adopt_files(self._client())
            while True:
                page = self._client().stack_workflows(self._scope.stack, limit=_PAGE, cursor=cursor)
                listed += self._adopt(page.items)
                cursor = page.next
                if cursor is None:
                    break
        if listed:
            self._mirror.write(listed)
        known = {one.session_id for one in listed}
        listed += [one for one in self._mirror.read_all() if one.session_id not in known]
        return sorted(listed, key=lambda one: one.started_at, reverse=True)

    def _adopt(self, found: list[WorkflowSession]) -> list[WorkflowSession]:
        """The objects of these workflow sessions: known ones are updated in place."""
        with self._viewing:
            return [self._adopt_one(one) for one in found]

    def _adopt_one(self, fresh: WorkflowSession) -> WorkflowSession:
        known = self._objects.setdefault(fresh.session_id, fresh)
        if known is not fresh and fresh.revision >= known.revision:
            for name in WorkflowSession.model_fields:
                setattr(known, name, getattr(fresh, name))
        return known

    def _of(self, change: _Changed) -> WorkflowSession:
        assert change.made.workflow is not None
        return self._adopt([change.made.workflow])[0]

    def _top(self) -> WorkflowSession | None:
        return self._session_stack[-1] if self._session_stack else None

    def _client(self) -> Client:
        if self._given is not None:
            return self._given
        with self._opening:
            if self._opened is None:
                self._opened = Client()
            return self._opened


def _named(session_id: str | None) -> str | None:
    """The id of a workflow session. Raises StateError for a text that is no id."""
    if session_id is not None and not re.fullmatch(WORKFLOW_ID, session_id):
        raise _not_stacked(session_id)
    return session_id


def _not_stacked(session_id: str) -> StateError:
    return StateError(f"Session '{session_id}' not found in active stack")


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the API's refusals into StateError with the same text."""
    try:
        yield
    except (NoActiveWorkflow, WorkflowNotStacked, WorkflowUnknown) as error:
        raise StateError(error.problem.detail) from None
    except StackRefused as error:
        raise StateError(str(error)) from None
