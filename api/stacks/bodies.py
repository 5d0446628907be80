"""The bodies and queries of the routes of stacks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api import requests
from leadhand.models.guards import AgentSession
from leadhand.models.stacks import (
    Goal,
    Index,
    Label,
    Notes,
    Outputs,
    StackName,
    Status,
    WorkflowSession,
)


class StartWorkflow(requests.Body):
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


class OneStep(requests.Body):
    """A step of the workflow session."""

    step_id: Label


class CompleteStep(OneStep):
    """The end of a step."""

    #: At most 64 KiB of JSON; those of all steps together at most 1 MiB.
    outputs: Outputs = Field(default_factory=dict)
    notes: Notes | None = None


class Advance(OneStep):
    """The step that is to be the current one."""

    entry_index: Index


class MoveStack(requests.Body):
    """Where a stack belongs from now on."""

    #: Its new name, and for a folder's stack that folder and its host.
    to: StackName
    folder: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    place: StackName | None = None


class StackQuery(requests.Query):
    """Which stack of this name: the common one, or that of an agent session."""

    #: The agent's own session, such as that of its hooks: it has a stack beside the common one.
    agent_session: AgentSession | None = None


class AbortWorkflow(requests.Body):
    """Why a workflow session ends without result."""

    reason: Annotated[str, Field(max_length=20_000)] = ""


class LoadWorkflow(requests.Body):
    """What is loaded, and whether it may replace another one."""

    #: Imported if the store has no record of it, such as from its JSON file.
    record: WorkflowSession | None = None
    #: Replace the workflow session on top, also load one that has ended.
    force: bool = False


class WorkflowsQuery(requests.PageQuery, StackQuery):
    """Which workflow sessions of a stack are listed."""

    job_name: Label | None = None
    workflow_name: Label | None = None
    instance_id: Label | None = None
    status: Status | None = None
