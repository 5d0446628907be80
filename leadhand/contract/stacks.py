"""The operations on stacks: start, advance, end, load, list and delete workflow sessions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from leadhand.contract.bodies import Body, NoBody, PageQuery, Query
from leadhand.contract.operation import A, BodyRight, Operation, Scope, replies
from leadhand.models.guards import AgentSession
from leadhand.models.stacks import (
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
