"""The operations on stacks of workflow sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadhand.client.calls import Call
from leadhand.client.operation import Ask, Op, Operations
from leadhand.client.requests import given, idempotent, reads, request, strictly_dumped
from leadhand.contract import stacks
from leadhand.contract.operation import Operation
from leadhand.models.stacks import (
    ACTIVE,
    OutputsView,
    StackChange,
    StackHead,
    StackView,
    Status,
    WorkflowSession,
)
from leadhand.models.views.view import Page


class Stacks(Operations):
    """Starts, advances, ends and lists workflow sessions on stacks.

    A call without `workflow` is about the active workflow session, which is on top of the stack.
    It raises NoActiveWorkflow if there is none; one with `workflow` raises WorkflowNotStacked if
    that is not on the stack.
    """

    @Op
    def stacks(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Ask[Page[StackHead]]:
        """List a page of the stacks of workflow sessions, the last changed first."""
        return reads(Page[StackHead], request(stacks.LIST, limit=limit, cursor=cursor))

    @Op
    def stack(self, stack: str) -> Ask[StackView]:
        """Get a stack by name with the workflow sessions on it; an unused name has an empty one."""
        return reads(StackView, request(stacks.SHOW, stack))

    @Op
    def stack_workflows(
        self,
        stack: str,
        *,
        job_name: str | None = None,
        workflow_name: str | None = None,
        instance_id: str | None = None,
        status: Status | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Ask[Page[WorkflowSession]]:
        """List a page of a stack's workflow sessions that match, newest first, ended ones too."""
        call = request(
            stacks.WORKFLOWS, stack, job_name=job_name, workflow_name=workflow_name,
            instance_id=instance_id, status=status, limit=limit, cursor=cursor,
        )  # fmt: skip
        return reads(Page[WorkflowSession], call)

    @Op
    def stack_workflow(self, stack: str, workflow: str | None = None) -> Ask[WorkflowSession]:
        """Get a stack's workflow session by id, also an ended one; by default the active one.

        Raises WorkflowUnknown.
        """
        return reads(WorkflowSession, request(stacks.WORKFLOW, stack, _named(workflow)))

    @Op
    def workflow_outputs(self, stack: str, workflow: str | None = None) -> Ask[OutputsView]:
        """Return the merged outputs of a workflow session's completed steps; later steps win."""
        return reads(OutputsView, request(stacks.OUTPUTS, stack, _named(workflow)))

    @Op
    def start_workflow(
        self,
        stack: str,
        job_name: str,
        workflow_name: str,
        first_step_id: str,
        *,
        goal: str = "",
        instance_id: str | None = None,
        folder: str | None = None,
        place: str | None = None,
        idempotency_key: str | None = None,
    ) -> Ask[StackChange]:
        """Start a workflow session on top of a stack, above the one that was active.

        `folder` and `place` describe a folder's stack. Raises StackRefused if it is full.
        """
        body = {
            "job_name": job_name, "workflow_name": workflow_name, "goal": goal,
            "first_step_id": first_step_id, "instance_id": instance_id, "folder": folder,
            "place": place,
        }  # fmt: skip
        return reads(StackChange, _change(stacks.START, stack, body=body, key=idempotency_key))

    @Op
    def start_step(self, stack: str, step: str, *, workflow: str | None = None) -> Ask[StackChange]:
        """Record the start of a step of a workflow session, and make it the current step."""
        return _changes(stacks.START_STEP, stack, workflow, step_id=step)

    @Op
    def complete_step(
        self,
        stack: str,
        step: str,
        outputs: Mapping[str, Any] | None = None,
        notes: str | None = None,
        *,
        workflow: str | None = None,
    ) -> Ask[StackChange]:
        """Record the end of a workflow session's step, with outputs (at most 64 KiB) and notes."""
        fields = {"step_id": step, "outputs": dict(outputs or {}), "notes": notes}
        return _changes(stacks.COMPLETE_STEP, stack, workflow, **fields)

    @Op
    def record_quality_attempt(
        self, stack: str, step: str, *, workflow: str | None = None
    ) -> Ask[StackChange]:
        """Add 1 to a step's count of quality attempts; returns the count and the stack."""
        return _changes(stacks.QUALITY_ATTEMPT, stack, workflow, step_id=step)

    @Op
    def advance_to_step(
        self, stack: str, step: str, entry_index: int, *, workflow: str | None = None
    ) -> Ask[StackChange]:
        """Make another step of a workflow session its current one: a later or an earlier one."""
        return _changes(stacks.ADVANCE, stack, workflow, step_id=step, entry_index=entry_index)

    @Op
    def complete_workflow(self, stack: str, *, workflow: str | None = None) -> Ask[StackChange]:
        """Mark a workflow session as completed and take it off its stack, from any position."""
        return _changes(stacks.COMPLETE, stack, workflow)

    @Op
    def abort_workflow(
        self, stack: str, reason: str, *, workflow: str | None = None
    ) -> Ask[StackChange]:
        """Mark a workflow session as aborted and take it off its stack, from any position."""
        return _changes(stacks.ABORT, stack, workflow, reason=reason)

    @Op
    def load_workflow(
        self,
        stack: str,
        workflow: str,
        record: WorkflowSession | None = None,
        *,
        force: bool = False,
    ) -> Ask[StackChange]:
        """Put a workflow session back on top of its stack; `record` is imported if none is stored.

        Raises WorkflowUnknown, and StackRefused where another one is on top or it has ended:
        with `force` it replaces the one on top.
        """
        stored = None if record is None else record.to_dict()
        return _changes(stacks.LOAD, stack, workflow, record=stored, force=force)

    @Op
    def delete_workflow(self, stack: str, workflow: str) -> Ask[StackChange]:
        """Delete a workflow session's record and take it off its stack. Raises WorkflowUnknown."""
        return reads(StackChange, request(stacks.DELETE, stack, workflow, headers=idempotent()))

    @Op
    def move_stack(
        self, stack: str, to: str, *, folder: str | None = None, place: str | None = None
    ) -> Ask[StackView]:
        """Give a stack another name, and the folder to which its project was moved.

        Raises StackRefused if there is none of the old name, or one of the new name.
        """
        body = {"to": to, "folder": folder, "place": place}
        return reads(StackView, _change(stacks.MOVE, stack, body=body))


def _changes(
    operation: Operation[Any], stack: str, workflow: str | None, **body: Any
) -> Ask[StackChange]:
    return reads(StackChange, _change(operation, stack, _named(workflow), body=body))


def _change(
    operation: Operation[Any], *path: str, body: Mapping[str, Any], key: str | None = None
) -> Call:
    content = strictly_dumped(given(**body))
    return request(operation, *path, headers=idempotent(key), content=content)


def _named(workflow: str | None) -> str:
    """The workflow session in a path: None is the active one, a text an id, which is checked."""
    return ACTIVE if workflow is None else workflow
