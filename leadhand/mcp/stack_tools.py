"""The MCP tools of stacks: an agent keeps its nested workflows with them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import Field, JsonValue

from leadhand.client.client import Client
from leadhand.mcp.tool import Arguments, Calls, Function, Result, Tool, description_of
from leadhand.models import stacks
from leadhand.models.guards import AgentSession
from leadhand.models.stacks import StackChange
from leadhand.stack import FILES, Mirror, Scope, adopt_stacks, find_scope, read_origin, update_files

log = logging.getLogger("leadhand.stack")

SessionId = Annotated[
    stacks.WorkflowId | None,
    Field(description="A workflow session on the stack; by default the active one, on top."),
]
StepId = Annotated[stacks.Label, Field(description="The name of the step.")]


class OfStack(Arguments):
    stack: Annotated[
        stacks.StackName | None,
        Field(description="The name of a stack; by default that of the current folder."),
    ] = None
    agent_session: Annotated[
        AgentSession | None,
        Field(
            description="Your own session, if other agents work in this folder: then you have a"
            " stack of your own beside it."
        ),
    ] = None

    @property
    def scope(self) -> Scope:
        """Return the stack that the call names, by default that of the current folder."""
        return find_scope(Path(), self.stack, agent_session=self.agent_session)


class OfSession(OfStack):
    session_id: SessionId = None


class StartWorkflow(OfStack):
    job_name: Annotated[stacks.Label, Field(description="The job that the workflow belongs to.")]
    workflow_name: stacks.Label
    goal: Annotated[stacks.Goal, Field(description="What the workflow is to achieve.")]
    first_step_id: StepId
    instance_id: Annotated[
        stacks.Label | None, Field(description="What it works on, if it runs for several things.")
    ] = None


class OneStep(OfSession):
    step_id: StepId


class CompleteStep(OneStep):
    outputs: Annotated[
        dict[str, JsonValue], Field(description="The outputs by name, such as paths of files.")
    ] = Field(default_factory=dict)
    notes: Annotated[
        stacks.Notes | None, Field(description="What the next steps need to know.")
    ] = None


class Advance(OneStep):
    entry_index: Annotated[
        stacks.Index, Field(description="The position of the step in the workflow, from 0.")
    ]


class Abort(OfSession):
    explanation: Annotated[str, Field(max_length=20_000, description="Why the workflow ends.")]


class Load(OfStack):
    session_id: stacks.WorkflowId
    force: Annotated[
        bool, Field(description="Replace the one on top; also load one that has ended.")
    ] = False


class ListSessions(OfStack):
    job_name: stacks.Label | None = None
    workflow_name: stacks.Label | None = None
    status: Annotated[stacks.Status | None, Field(description="Only those of this status.")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    cursor: Annotated[str | None, Field(description="The `next` of the page before.")] = None


#: The tools by name, in the order in which they are listed.
STACK_TOOLS: dict[str, Tool] = {}


def _tool(*, reads: bool = False) -> Callable[[Function], Function]:
    """Declares a tool, which first moves the stack of a folder that was renamed to this one."""

    def declare(function: Function) -> Function:
        async def call(calls: Calls, given: OfStack) -> Result:
            scope = given.scope
            if scope.folder is not None:
                await asyncio.to_thread(_adopt, calls.client.url, calls.client.token, scope)
            return await function(calls, given)

        arguments = get_type_hints(function)["given"]
        STACK_TOOLS[function.__name__] = Tool(description_of(function), arguments, call, reads)
        return function

    return declare


@_tool()
async def start_workflow(calls: Calls, given: StartWorkflow) -> Result:
    """Start a workflow of several steps that you carry out; inside another one it is nested."""
    scope = given.scope
    change = await calls.client.start_workflow(
        scope.stack,
        given.job_name,
        given.workflow_name,
        given.first_step_id,
        goal=given.goal,
        instance_id=given.instance_id,
        folder=scope.folder,
        place=scope.place,
    )
    return await _result(scope, change)


@_tool()
async def start_step(calls: Calls, given: OneStep) -> Result:
    """Record the start of a step of the active workflow."""
    change = await calls.client.start_step(
        given.scope.stack, given.step_id, workflow=given.session_id
    )
    return await _result(given.scope, change)


@_tool()
async def complete_step(calls: Calls, given: CompleteStep) -> Result:
    """Record the end of a step, with its outputs and notes."""
    change = await calls.client.complete_step(
        given.scope.stack, given.step_id, given.outputs, given.notes, workflow=given.session_id
    )
    return await _result(given.scope, change)


@_tool()
async def record_quality_attempt(calls: Calls, given: OneStep) -> Result:
    """Count an attempt to pass a step's quality criteria; returns how many there are."""
    change = await calls.client.record_quality_attempt(
        given.scope.stack, given.step_id, workflow=given.session_id
    )
    return await _result(given.scope, change)


@_tool()
async def advance_to_step(calls: Calls, given: Advance) -> Result:
    """Move the active workflow to another step, forwards or back."""
    change = await calls.client.advance_to_step(
        given.scope.stack, given.step_id, given.entry_index, workflow=given.session_id
    )
    return await _result(given.scope, change)


@_tool()
async def complete_workflow(calls: Calls, given: OfSession) -> Result:
    """End the active workflow as completed; the one below it is active again."""
    change = await calls.client.complete_workflow(given.scope.stack, workflow=given.session_id)
    return await _result(given.scope, change)


@_tool()
async def abort_workflow(calls: Calls, given: Abort) -> Result:
    """End the active workflow without result, with the reason."""
    change = await calls.client.abort_workflow(
        given.scope.stack, given.explanation, workflow=given.session_id
    )
    return await _result(given.scope, change)


@_tool()
async def load_session(calls: Calls, given: Load) -> Result:
    """Put a workflow session back on top of the stack."""
    scope = given.scope
    files = None if scope.folder is None else Mirror(Path(scope.folder, FILES))
    record = None if files is None else await asyncio.to_thread(files.read, given.session_id)
    change = await calls.client.load_workflow(
        scope.stack, given.session_id, record, force=given.force
    )
    return await _result(scope, change)


@_tool(reads=True)
async def get_active_session(calls: Calls, given: OfSession) -> Result:
    """Get the active workflow session, or another one, with its steps."""
    return await calls.client.stack_workflow(given.scope.stack, given.session_id)


@_tool(reads=True)
async def get_stack(calls: Calls, given: OfStack) -> Result:
    """List the nested workflows, the active one last."""
    view = await calls.client.stack(given.scope.stack)
    entries = [
        {"session_id": one.session_id, "workflow": one.workflow, "step": one.current_step_id}
        for one in view.workflows
    ]
    return {"depth": view.depth, "stack": entries}


@_tool(reads=True)
async def get_all_outputs(calls: Calls, given: OfSession) -> Result:
    """Get the outputs of all completed steps of the active workflow."""
    return await calls.client.workflow_outputs(given.scope.stack, given.session_id)


@_tool(reads=True)
async def list_sessions(calls: Calls, given: ListSessions) -> Result:
    """List the workflow sessions of the stack, ended ones too, the newest first."""
    return await calls.client.stack_workflows(
        given.scope.stack,
        job_name=given.job_name,
        workflow_name=given.workflow_name,
        status=given.status,
        limit=given.limit,
        cursor=given.cursor,
    )


async def _result(scope: Scope, change: StackChange) -> dict[str, Any]:
    """The workflow session, its quality attempts, and the active one; updates the files."""
    await asyncio.to_thread(update_files, scope, change)
    active = change.stack.active
    return {
        "session": None if change.workflow is None else change.workflow.to_dict(),
        "quality_attempts": change.quality_attempts,
        "active_session_id": None if active is None else active.session_id,
        "depth": change.stack.depth,
    }


def _adopt(url: str, token: str | None, scope: Scope) -> None:
    files = Path(str(scope.folder), FILES)
    if read_origin(files) is None:
        return
    with Client(url, token) as client:
        why = adopt_stacks(client, files, scope)
    if why is not None:
        log.warning("%s", why)
