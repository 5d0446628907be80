"""The operations on stacks: start, advance, end, load, list and delete workflow sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from leadhand.contract.calls import Ask, Call, Noun, Op
from leadhand.contract.operation import (
    A,
    Body,
    BodyRight,
    NoBody,
    Operation,
    PageQuery,
    Query,
    Scope,
    replies,
)
from leadhand.contract.requests import calls, given, idempotent, reads, request, strictly_dumped
from leadhand.models.guards import AgentSession
from leadhand.models.stacks import (
    ACTIVE,
    Goal,
    Index,
    Label,
    Notes,
    Outputs,
    OutputsView,
    StackChange,
    StackHead,
    StackName,
    StackView,
    Status,
    WorkflowSession,
)
from leadhand.models.views.view import Page

_STACK = "/v1/stacks/{stack}"
_ONE = f"{_STACK}/workflows/{{workflow}}"
#: A stack belongs to a folder and not to a session.
_READS = BodyRight("read", "any")
_CHANGES = BodyRight("share", "any")
_CHANGE = replies(StackChange, "The workflow session and the stack, as they are now.")


class StackQuery(Query):
    """Which stack of this name: the common one, or that of an agent session."""

    #: The agent's own session, such as that of its hooks: it has a stack beside the common one.
    agent_session: AgentSession | None = None


def _change(verb: str, summary: str, body: type[A], *, body_required: bool = True) -> Operation[A]:
    """Declares a change of a workflow session on a stack."""
    return Operation(
        name=f"stacks.{verb}", method="POST", path=f"{_ONE}/{verb.replace('_', '-')}",
        summary=summary, responses=(_CHANGE,), scope=Scope.CONTROL, body_right=_CHANGES,
        query=StackQuery, body=body, body_required=body_required, headers=("Idempotency-Key",),
        refuses=(409, 422),
    )  # fmt: skip


LIST = Operation[PageQuery](
    name="stacks.listed", method="GET", path="/v1/stacks",
    summary="List the stacks, the one that was changed last first",
    responses=(replies(Page[StackHead], "A page of stacks."),),
    scope=Scope.READ,
    query=PageQuery,
)  # fmt: skip


SHOW = Operation[StackQuery](
    name="stacks.one", method="GET", path=_STACK,
    summary="Show the workflow sessions on a stack",
    responses=(replies(StackView, "The stack as it is now; an unused one is empty."),),
    scope=Scope.READ,
    body_right=_READS, query=StackQuery, refuses=(422,),
)  # fmt: skip


class MoveStack(Body):
    """Where a stack belongs from now on."""

    #: Its new name, and for a folder's stack that folder and its host.
    to: StackName
    folder: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    place: StackName | None = None


MOVE = Operation[MoveStack](
    name="stacks.move", method="POST", path=f"{_STACK}/move",
    summary="Give a stack the name and folder of a moved project",
    responses=(replies(StackView, "The stack under its new name."),),
    scope=Scope.CONTROL,
    query=StackQuery, body=MoveStack, body_required=True, headers=("Idempotency-Key",),
    refuses=(409, 422),
)  # fmt: skip


class WorkflowsQuery(PageQuery, StackQuery):
    """Which workflow sessions of a stack are listed."""

    job_name: Label | None = None
    workflow_name: Label | None = None
    instance_id: Label | None = None
    status: Status | None = None


WORKFLOWS = Operation[WorkflowsQuery](
    name="stacks.workflows", method="GET", path=f"{_STACK}/workflows",
    summary="List the workflow sessions of a stack, ended ones too",
    responses=(replies(Page[WorkflowSession], "A page of them, the newest first."),),
    scope=Scope.READ,
    body_right=_READS, query=WorkflowsQuery,
)  # fmt: skip


WORKFLOW = Operation[StackQuery](
    name="stacks.workflow", method="GET", path=_ONE,
    summary="Show a workflow session, or the `active` one",
    responses=(replies(WorkflowSession, "The workflow session as it is now."),),
    scope=Scope.READ,
    body_right=_READS, query=StackQuery, refuses=(409, 422),
)  # fmt: skip


OUTPUTS = Operation[StackQuery](
    name="stacks.outputs", method="GET", path=f"{_ONE}/outputs",
    summary="Merge the outputs of a workflow session's completed steps",
    responses=(replies(OutputsView, "Of equal names, the output of the later step."),),
    scope=Scope.READ,
    body_right=_READS, query=StackQuery, refuses=(409, 422),
)  # fmt: skip


class StartWorkflow(Body):
    """A workflow session that is to start."""

    job_name: Label
    workflow_name: Label
    goal: Goal = ""
    #: The step that is the current one at first.
    first_step_id: Label
    #: What the workflow works on, if it runs for several things.
    instance_id: Label | None = None
    #: Of a folder's stack: its real path, and the host that has it. The first start stores them.
    folder: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    place: StackName | None = None


START = Operation[StartWorkflow](
    name="stacks.start", method="POST", path=f"{_STACK}/workflows",
    summary="Start a workflow session on top of a stack",
    responses=(replies(StackChange, "The workflow session and the stack.", 201),),
    scope=Scope.CONTROL,
    body_right=_CHANGES, query=StackQuery, body=StartWorkflow, body_required=True,
    headers=("Idempotency-Key",), refuses=(409,),
)  # fmt: skip


class OneStep(Body):
    """A step of the workflow session."""

    step_id: Label


START_STEP = _change("step_start", "Record the start of a step", OneStep)


class CompleteStep(OneStep):
    """The end of a step."""

    #: At most 64 KiB of JSON; those of all steps together at most 1 MiB.
    outputs: Outputs = Field(default_factory=dict)
    notes: Notes | None = None


COMPLETE_STEP = _change("step_complete", "Record the end of a step", CompleteStep)


QUALITY_ATTEMPT = _change("quality_attempt", "Count a quality attempt of a step", OneStep)


class Advance(OneStep):
    """The step that is to be the current one."""

    entry_index: Index


ADVANCE = _change("advance", "Move to another step, forwards or back", Advance)


COMPLETE = _change("complete", "End a workflow session as completed", NoBody, body_required=False)


class AbortWorkflow(Body):
    """Why a workflow session ends without result."""

    reason: Annotated[str, Field(max_length=20_000)] = ""


ABORT = _change("abort", "End a workflow session as aborted", AbortWorkflow, body_required=False)


class LoadWorkflow(Body):
    """What is loaded, and whether it may replace another one."""

    #: Imported if the store has no record of it, such as from its JSON file.
    record: WorkflowSession | None = None
    #: Replace the workflow session on top, also load one that has ended.
    force: bool = False


LOAD = _change(
    "load", "Put a workflow session back on top of its stack", LoadWorkflow, body_required=False
)


DELETE = Operation[StackQuery](
    name="stacks.delete", method="DELETE", path=_ONE,
    summary="Delete a workflow session, active or not",
    responses=(_CHANGE,),
    scope=Scope.CONTROL,
    query=StackQuery, headers=("Idempotency-Key",), refuses=(422,),
)  # fmt: skip


class Stacks(Noun):
    """Starts, advances, ends and lists workflow sessions on stacks.

    A call without `workflow` is about the active workflow session, which is on top of the stack.
    It raises NoActiveWorkflow if there is none; one with `workflow` raises WorkflowNotStacked if
    that is not on the stack.
    """

    @calls(LIST)
    def stacks(self, *, limit: int | None = None, cursor: str | None = None) -> Page[StackHead]:
        """List a page of the stacks of workflow sessions, the last changed first."""

    @calls(SHOW)
    def stack(self, stack: str) -> StackView:
        """Get a stack by name with the workflow sessions on it; an unused name has an empty one."""

    @calls(WORKFLOWS)
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

    @Op
    def stack_workflow(self, stack: str, workflow: str | None = None) -> Ask[WorkflowSession]:
        """Get a stack's workflow session by id, also an ended one; by default the active one.

        Raises WorkflowUnknown.
        """
        return reads(WorkflowSession, request(WORKFLOW, stack, _named(workflow)))

    @Op
    def workflow_outputs(self, stack: str, workflow: str | None = None) -> Ask[OutputsView]:
        """Return the merged outputs of a workflow session's completed steps; later steps win."""
        return reads(OutputsView, request(OUTPUTS, stack, _named(workflow)))

    @calls(START)
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

    @Op
    def start_step(self, stack: str, step: str, *, workflow: str | None = None) -> Ask[StackChange]:
        """Record the start of a step of a workflow session, and make it the current step."""
        return _changes(START_STEP, stack, workflow, step_id=step)

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
        return _changes(COMPLETE_STEP, stack, workflow, **fields)

    @Op
    def record_quality_attempt(
        self, stack: str, step: str, *, workflow: str | None = None
    ) -> Ask[StackChange]:
        """Add 1 to a step's count of quality attempts; returns the count and the stack."""
        return _changes(QUALITY_ATTEMPT, stack, workflow, step_id=step)

    @Op
    def advance_to_step(
        self, stack: str, step: str, entry_index: int, *, workflow: str | None = None
    ) -> Ask[StackChange]:
        """Make another step of a workflow session its current one: a later or an earlier one."""
        return _changes(ADVANCE, stack, workflow, step_id=step, entry_index=entry_index)

    @Op
    def complete_workflow(self, stack: str, *, workflow: str | None = None) -> Ask[StackChange]:
        """Mark a workflow session as completed and take it off its stack, from any position."""
        return _changes(COMPLETE, stack, workflow)

    @Op
    def abort_workflow(
        self, stack: str, reason: str, *, workflow: str | None = None
    ) -> Ask[StackChange]:
        """Mark a workflow session as aborted and take it off its stack, from any position."""
        return _changes(ABORT, stack, workflow, reason=reason)

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
        return _changes(LOAD, stack, workflow, record=stored, force=force)

    @calls(DELETE)
    def delete_workflow(self, stack: str, workflow: str) -> StackChange:
        """Delete a workflow session's record and take it off its stack. Raises WorkflowUnknown."""

    @calls(MOVE)
    def move_stack(
        self, stack: str, to: str, *, folder: str | None = None, place: str | None = None
    ) -> StackView:
        """Give a stack another name, and the folder to which its project was moved.

        Raises StackRefused if there is none of the old name, or one of the new name.
        """


def _changes(
    operation: Operation[Any], stack: str, workflow: str | None, **body: Any
) -> Ask[StackChange]:
    return reads(StackChange, _call(operation, stack, _named(workflow), body=body))


def _call(
    operation: Operation[Any], *path: str, body: Mapping[str, Any], key: str | None = None
) -> Call:
    content = strictly_dumped(given(**body))
    return request(operation, *path, headers=idempotent(key), content=content)


def _named(workflow: str | None) -> str:
    """The workflow session in a path: None is the active one, a text an id, which is checked."""
    return ACTIVE if workflow is None else workflow
