"""Reads stacks and their workflow sessions."""

from __future__ import annotations

from typing import NamedTuple

from app.domain.ids import SessionRef
from app.domain.stacks import StoredStack, head_view, stack_view, workflow_view
from app.queries.cursors import decode_cursor, encode_cursor, invalid_cursor, number_of
from app.store.stacks import StackReads
from app.store.store import Store
from leadhand.errors import NoActiveWorkflow, WorkflowNotStacked, WorkflowUnknown
from leadhand.models.stacks import (
    OutputsView,
    StackHead,
    StackView,
    Status,
    WorkflowSession,
)
from leadhand.models.views.view import Page

#: The most records per round trip; each may have a megabyte.
_BATCH = 200


class WorkflowFilter(NamedTuple):
    """Which workflow sessions of a stack are listed; None: any."""

    job_name: str | None = None
    workflow_name: str | None = None
    instance_id: str | None = None
    status: Status | None = None

    def accepts(self, workflow: WorkflowSession) -> bool:
        """Whether a workflow session has the values of all fields that the filter sets."""
        given = {name: value for name, value in self._asdict().items() if value is not None}
        return all(getattr(workflow, name) == value for name, value in given.items())


class StackQueries:
    """All methods raise StoreAway."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reads = store.part(StackReads)

    def stack(self, stack: str) -> StackView:
        """Returns a stack with its workflow sessions; one that was never used is empty."""
        answer = self._store.run("stack_look", SessionRef("", ""), "", {"stack": stack})
        return stack_view(stack, answer.stack or StoredStack())

    def stacks(self, *, limit: int = 50, cursor: str | None = None) -> Page[StackHead]:
        """Returns a page of the stacks, the one that was changed last first."""
        after = number_of(cursor)
        names = self._reads.stacks()[after:]
        page = names[:limit]
        heads = self._reads.heads(page)
        tops = self._reads.workflows([top or "" for _, _, top in heads])
        items = [
            head_view(name, head, depth, top)
            for name, (head, depth, _), top in zip(page, heads, tops, strict=True)
            if head
        ]
        return Page(items=items, next=encode_cursor(after + limit) if len(names) > limit else None)

    def workflow(self, stack: str, workflow: str) -> WorkflowSession:
        """Returns a workflow session of a stack, also an ended one. Raises WorkflowUnknown."""
        fields = self._reads.workflow(workflow)
        if fields.get("stack") != stack:
            raise WorkflowUnknown(workflow)
        return workflow_view(fields)

    def active(self, stack: str) -> WorkflowSession:
        """Returns the workflow session on top of a stack. Raises NoActiveWorkflow."""
        top = self.stack(stack).active
        if top is None:
            raise NoActiveWorkflow(stack)
        return self.workflow(stack, top.session_id)

    def workflows(
        self, stack: str, wanted: WorkflowFilter, *, limit: int = 50, cursor: str | None = None
    ) -> Page[WorkflowSession]:
        """Returns a page of a stack's workflow sessions, newest first, ended ones too."""
        members = self._reads.members(stack)
        after = 0 if cursor is None else _position_after(members, cursor)
        found: list[WorkflowSession] = []
        while after < len(members):
            batch = members[after : after + min(limit, _BATCH)]
            rows = self._reads.workflows([_id_of(member) for _, member in batch])
            for member, fields in zip(batch, rows, strict=True):
                after += 1
                if "status" in fields and wanted.accepts(view := workflow_view(fields)):
                    found.append(view)
                if len(found) == limit:
                    more = after < len(members)
                    return Page(items=found, next=encode_cursor(list(member)) if more else None)
        return Page(items=found)

    def outputs(self, stack: str, workflow: str | None) -> OutputsView:
        """Returns the merged outputs of a workflow session's completed steps; None: the active one.

        Raises WorkflowNotStacked, NoActiveWorkflow.
        """
        if workflow is None:
            found = self.active(stack)
        elif any(one.session_id == workflow for one in self.stack(stack).workflows):
            found = self.workflow(stack, workflow)
        else:
            raise WorkflowNotStacked(workflow)
        return OutputsView(session_id=found.session_id, outputs=found.merge_outputs())


def _id_of(member: str) -> str:
    return member.partition("<")[2]


def _position_after(members: list[tuple[float, str]], cursor: str) -> int:
    """The position behind the last member of the page before, also if it was deleted since."""
    match decode_cursor(cursor):
        case [float() | int() as started, str() as member]:
            last = (float(started), member)
        case _:
            raise invalid_cursor(cursor)
    return next((at for at, one in enumerate(members) if one < last), len(members))
