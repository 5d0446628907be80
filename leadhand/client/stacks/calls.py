# Generated from async_calls.py by scripts/client.py: do not edit.
"""The operations of the synchronous client on stacks of workflow sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadhand.client.calls import Call
from leadhand.client.connection import Connection
from leadhand.client.requests import M, parsed
from leadhand.client.stacks.requests import (
    change,
    idempotent,
    listing,
    stack_path,
    workflow_path,
)
from leadhand.models.stacks import (
    OutputsView,
    StackChange,
    StackHead,
    StackView,
    Status,
    WorkflowSession,
)
from leadhand.models.views import Page


class StackCalls:
    """Starts, advances, ends and lists workflow sessions on stacks.

    A call without `workflow` is about the active workflow session, which is on top of the stack.
    It raises NoActiveWorkflow if there is none; one with `workflow` raises WorkflowNotStacked if
    that is not on the stack.
    """

    _connection: Connection

    def stacks(self, *, limit: int | None = None, cursor: str | None = None) -> Page[StackHead]:
        """List a page of the stacks of workflow sessions, the last changed first."""
        call = listing("/v1/stacks", limit=limit, cursor=cursor)
        return self._ask_stack(Page[StackHead], call)

    def stack(self, stack: str) -> StackView:
        """Get a stack by name with the workflow sessions on it; an unused name has an empty one."""
        return self._ask_stack(StackView, Call("GET", stack_path(stack)))

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
    ) -> Page[WorkflowSession]:
        """List a page of a stack's workflow sessions that match, newest first, ended ones too."""
        call = listing(
            stack_path(stack, "workflows"), job_name=job_name, workflow_name=workflow_name,
            instance_id=instance_id, status=status, limit=limit, cursor=cursor,
        )  # fmt: skip
        return self._ask_stack(Page[WorkflowSession], call)

    def stack_workflow(self, stack: str, workflow: str | None = None) -> WorkflowSession:
        """Get a stack's workflow session by id, also an ended one; by default the active one.

        Raises WorkflowUnknown.
        """
        call = Call("GET", workflow_path(stack, workflow))
        return self._ask_stack(WorkflowSession, call)

    def workflow_outputs(self, stack: str, workflow: str | None = None) -> OutputsView:
        """Return the merged outputs of a workflow session's completed steps; later steps win."""
        call = Call("GET", workflow_path(stack, workflow, "outputs"))
        return self._ask_stack(OutputsView, call)

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
    ) -> StackChange:
        """Start a workflow session on top of a stack, above the one that was active.

        `folder` and `place` describe a folder's stack. Raises StackRefused if it is full.
        """
        body = {
            "job_name": job_name, "workflow_name": workflow_name, "goal": goal,
            "first_step_id": first_step_id, "instance_id": instance_id, "folder": folder,
            "place": place,
        }  # fmt: skip
        path = stack_path(stack, "workflows")
        return self._ask_stack(StackChange, change(path, body, idempotency_key))

    def start_step(self, stack: str, step: str, *, workflow: str | None = None) -> StackChange:
        """Record the start of a step of a workflow session, and make it the current step."""
        return self._change_stack(stack, workflow, "step-start", step_id=step)

    def complete_step(
        self,
        stack: str,
        step: str,
        outputs: Mapping[str, Any] | None = None,
        notes: str | None = None,
        *,
        workflow: str | None = None,
    ) -> StackChange:
        """Record the end of a workflow session's step, with outputs (at most 64 KiB) and notes."""
        given = {"step_id": step, "outputs": dict(outputs or {}), "notes": notes}
        return self._change_stack(stack, workflow, "step-complete", **given)

    def record_quality_attempt(
        self, stack: str, step: str, *, workflow: str | None = None
    ) -> StackChange:
        """Add 1 to a step's count of quality attempts; returns the count and the stack."""
        return self._change_stack(stack, workflow, "quality-attempt", step_id=step)

    def advance_to_step(
        self, stack: str, step: str, entry_index: int, *, workflow: str | None = None
    ) -> StackChange:
        """Make another step of a workflow session its current one: a later or an earlier one."""
        given = {"step_id": step, "entry_index": entry_index}
        return self._change_stack(stack, workflow, "advance", **given)

    def complete_workflow(self, stack: str, *, workflow: str | None = None) -> StackChange:
        """Mark a workflow session as completed and take it off its stack, from any position."""
        return self._change_stack(stack, workflow, "complete")

    def abort_workflow(
        self, stack: str, reason: str, *, workflow: str | None = None
    ) -> StackChange:
        """Mark a workflow session as aborted and take it off its stack, from any position."""
        return self._change_stack(stack, workflow, "abort", reason=reason)

    def load_workflow(
        self,
        stack: str,
        workflow: str,
        record: WorkflowSession | None = None,
        *,
        force: bool = False,
    ) -> StackChange:
        """Put a workflow session back on top of its stack; `record` is imported if none is stored.

        Raises WorkflowUnknown, and StackRefused where another one is on top or it has ended:
        with `force` it replaces the one on top.
        """
        given = {"record": None if record is None else record.to_dict(), "force": force}
        return self._change_stack(stack, workflow, "load", **given)

    def delete_workflow(self, stack: str, workflow: str) -> StackChange:
        """Delete a workflow session's record and take it off its stack. Raises WorkflowUnknown."""
        call = Call("DELETE", workflow_path(stack, workflow), headers=idempotent())
        return self._ask_stack(StackChange, call)

    def move_stack(
        self, stack: str, to: str, *, folder: str | None = None, place: str | None = None
    ) -> StackView:
        """Give a stack another name, and the folder to which its project was moved.

        Raises StackRefused if there is none of the old name, or one of the new name.
        """
        body = {"to": to, "folder": folder, "place": place}
        return self._ask_stack(StackView, change(stack_path(stack, "move"), body))

    def _change_stack(
        self, stack: str, workflow: str | None, verb: str, **given: Any
    ) -> StackChange:
        path = workflow_path(stack, workflow, verb)
        return self._ask_stack(StackChange, change(path, given))

    def _ask_stack(self, model: type[M], call: Call) -> M:
        return parsed(model, (self._connection.transport.send(call)).checked())
