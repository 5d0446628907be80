"""`StateManager`: the stack of a folder's workflow sessions, with the names of the seed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from leadhand.client.client import Client
from leadhand.errors import NoActiveWorkflow, StackRefused, WorkflowNotStacked, WorkflowUnknown
from leadhand.models.stacks import (
    WORKFLOW_ID,
    StackChange,
    StackedWorkflow,
    StackEntry,
    StackView,
    WorkflowSession,
    entries_of,
)
from leadhand.stack.errors import StateError
from leadhand.stack.mirror import FILES, Mirror
from leadhand.stack.moving import adopt_stacks
from leadhand.stack.scope import find_scope

log = logging.getLogger("leadhand.stack")
T = TypeVar("T")

_NONE_ACTIVE = "No active workflow session. Use start_workflow to begin one."
_PAGE = 500


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
