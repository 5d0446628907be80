"""Workflow sessions on a stack: the model that the API, the clients and the JSON files share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from leadhand.models.patterns import NAME
from leadhand.models.views.view import View

#: Any character but control characters.
LINE = r"^[^\x00-\x1f\x7f]+$"

WORKFLOW_ID = r"^[0-9a-f]{8}$"
#: In a path, the workflow session on top of the stack.
ACTIVE = "active"
#: Between the name of a stack and the hash of an agent session.
_OF_AGENT = ".agent-"

StackName = Annotated[str, Field(pattern=NAME)]
WorkflowId = Annotated[str, Field(pattern=WORKFLOW_ID)]
#: The name of a job, a workflow or a step.
Label = Annotated[str, Field(min_length=1, max_length=200, pattern=LINE)]
Goal = Annotated[str, Field(max_length=20_000)]
Notes = Annotated[str, Field(max_length=20_000)]
Outputs = dict[str, JsonValue]
Index = Annotated[int, Field(ge=0, le=1_000_000)]
Status = Literal["active", "completed", "aborted"]


class StepProgress(BaseModel):
    """How far a step of a workflow session is."""

    model_config = ConfigDict(extra="ignore")

    step_id: Label
    started_at: str | None = None
    #: Kept if the step is started again.
    completed_at: str | None = None
    outputs: Outputs = {}
    notes: str | None = None
    quality_attempts: Annotated[int, Field(ge=0)] = 0


class WorkflowSession(BaseModel):
    """One run of a workflow that an agent carries out, on a stack of them."""

    model_config = ConfigDict(extra="ignore")

    session_id: WorkflowId
    job_name: Label
    workflow_name: Label
    goal: Goal
    #: What the workflow works on, if it runs for several things.
    instance_id: Label | None = None
    current_step_id: Label
    current_entry_index: Index = 0
    #: The steps by name, in the order in which they were first recorded.
    step_progress: dict[str, StepProgress] = {}
    #: Times are ISO 8601 in UTC.
    started_at: str
    completed_at: str | None = None
    status: Status = "active"
    abort_reason: str | None = None
    #: The workflow session below it on the stack, or that was below it last.
    parent_id: WorkflowId | None = None
    #: Grows with each change.
    revision: int = 0

    @property
    def workflow(self) -> str:
        """Return the job name and the workflow name, joined by a slash.

        >>> WorkflowSession(session_id="0000000a", job_name="web", workflow_name="release", goal="",
        ...                 current_step_id="build", started_at="").workflow
        'web/release'
        """
        return f"{self.job_name}/{self.workflow_name}"

    def to_dict(self) -> dict[str, Any]:
        """Convert the workflow session to JSON data."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Parse JSON data. Raises pydantic's ValidationError."""
        return cls.model_validate(data)

    def merge_outputs(self) -> Outputs:
        """Merge the outputs of all completed steps; later steps override earlier ones."""
        merged: Outputs = {}
        for step in self.step_progress.values():
            if step.completed_at is not None:
                merged |= step.outputs
        return merged


class StackEntry(BaseModel):
    """A line of a stack."""

    model_config = ConfigDict(frozen=True)

    #: ``job/workflow``.
    workflow: str
    step: str


class StackedWorkflow(View):
    """A workflow session in a stack, without its steps."""

    session_id: str
    job_name: str
    workflow_name: str
    instance_id: str | None = None
    current_step_id: str
    current_entry_index: int
    started_at: str
    parent_id: str | None = None
    revision: int

    @property
    def workflow(self) -> str:
        """Return the job name and the workflow name, joined by a slash."""
        return f"{self.job_name}/{self.workflow_name}"


class StackView(View):
    """A stack with the workflow sessions that are on it."""

    name: str
    #: Of a folder's stack: the folder, and the host that has it.
    folder: str | None = None
    place: str | None = None
    #: Grows with each change.
    version: int
    depth: int
    updated_at: str | None = None
    #: From the bottom to the top, which is the active one.
    workflows: list[StackedWorkflow]

    @property
    def active(self) -> StackedWorkflow | None:
        """Return the workflow session on top of the stack; None if the stack is empty."""
        return self.workflows[-1] if self.workflows else None


class StackHead(View):
    """A stack in a list."""

    name: str
    folder: str | None = None
    place: str | None = None
    depth: int
    updated_at: str | None = None
    #: The active workflow and its step.
    workflow: str | None = None
    step: str | None = None


class StackChange(View):
    """What a change did: the workflow session, and the stack as it is now."""

    #: Null if it was deleted.
    workflow: WorkflowSession | None
    #: Of a step: its quality attempts so far.
    quality_attempts: int | None = None
    stack: StackView


class OutputsView(View):
    """The merged outputs of a workflow session's completed steps."""

    session_id: str
    outputs: dict[str, JsonValue]


def place_of_host(host: str) -> str:
    """Returns the name of a host in the form of a place's name; it names the stacks of its folders.

    >>> place_of_host("ann's-laptop.local"), place_of_host("")
    ('ann-s-laptop.local', 'local')
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "-", host).lstrip("_.-")[:64] or "local"


def folder_stack(place: str, folder: str) -> str:
    """Returns the name of the stack of a folder: a hash of its place (host) and real path.

    >>> folder_stack("here", "/work/project")
    'folder-7adebc2ddd7f9cee'
    """
    digest = hashlib.sha256(f"{place}\n{folder}".encode()).hexdigest()
    return f"folder-{digest[:16]}"


def agent_stack(stack: str, agent_session: str) -> str:
    """Returns the name of the stack that an agent session has beside a stack. Raises ValueError.

    >>> agent_stack("folder-7adebc2ddd7f9cee", "agent-1")
    'folder-7adebc2ddd7f9cee.agent-6ff3b3bd11c44cac'
    """
    digest = hashlib.sha256(agent_session.encode()).hexdigest()
    name = f"{stack}{_OF_AGENT}{digest[:16]}"
    if not re.fullmatch(NAME, name):
        raise ValueError(f"{stack!r} is too long for a stack of an agent session; give 41 letters")
    return name


def moved_name(stack: str, old: str, new: str) -> str | None:
    """Returns the name of a stack after the move of its folder's stack; None for a named stack.

    >>> moved_name("folder-1.agent-2", "folder-1", "folder-3"), moved_name("x", "folder-1", "y")
    ('folder-3.agent-2', None)
    """
    rest = stack.removeprefix(old)
    is_of_folder = stack.startswith(old) and (not rest or rest.startswith(_OF_AGENT))
    return f"{new}{rest}" if is_of_folder else None


def entries_of(workflows: Iterable[WorkflowSession | StackedWorkflow]) -> list[StackEntry]:
    """Returns the workflow name and current step of each session on a stack, bottom first."""
    return [StackEntry(workflow=one.workflow, step=one.current_step_id) for one in workflows]
