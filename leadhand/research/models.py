"""Workflows of tool calls, their state, and their result."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any


class StepStatus(Enum):
    """The status of a step."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    #: It was at work, or waited for its next attempt, when another step ended the workflow.
    INTERRUPTED = "interrupted"


class _Unset(int):
    """A number that was not given: equal to 0, and known by its type."""


#: The retries of a step that names none: those of the agent's configuration.
DEFAULT_RETRIES = _Unset(0)


@dataclass
class WorkflowStep:
    """A step: a call of a tool.

    A step runs when the steps that its arguments refer to (`${step.key}`), and those in
    `depends_on`, have ended. Independent steps run at the same time.
    """

    name: str
    tool: str
    arguments: dict[str, Any]
    #: Whether its failure ends the workflow.
    critical: bool = True
    #: Seconds for one attempt.
    timeout: float = 60.0
    #: How often a failed call is repeated. A value that is given wins over the agent's
    #: `max_retries`, also 0.
    retry_count: int = DEFAULT_RETRIES
    description: str | None = None
    depends_on: list[str] = field(default_factory=list)
    #: The dollars that it may cost, as far as that is known; see `CostApproval`.
    estimated_cost: float | None = None

    def retries(self, default: int) -> int:
        """Return how often a failed call is repeated: the step's number, or else `default`."""
        return default if isinstance(self.retry_count, _Unset) else self.retry_count


@dataclass
class Workflow:
    """Steps that call tools."""

    name: str
    description: str
    steps: list[WorkflowStep]
    metadata: dict[str, Any] = field(default_factory=dict)

    def validate(self) -> None:
        """Raise WorkflowValidationError, with all errors, unless the workflow can run."""
        from leadhand.research.document import check_workflow

        check_workflow(self, strict=False)


@dataclass
class WorkflowState:
    """The state of a workflow that runs, or has run."""

    session_id: str
    workflow: Workflow | None
    #: pending, running, completed, failed, or stopped.
    status: str = "pending"
    #: The index of the first step that has not ended.
    current_step: int = 0
    completed_steps: list[str] = field(default_factory=list)
    step_results: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    started_at: datetime = field(default_factory=datetime.now)
    #: Steps that are not critical, and have failed.
    failed_steps: list[str] = field(default_factory=list)
    #: The session of Leadhand, and the key by which its submit is found again.
    leadhand_session: str | None = None
    run_key: str | None = None

    @property
    def ended_steps(self) -> set[str]:
        """Return the steps that do not run again: completed, or failed but not critical."""
        return {*self.completed_steps, *self.failed_steps}

    def advance(self) -> None:
        """Set `current_step` to the first step that has not ended."""
        steps = self.workflow.steps if self.workflow is not None else []
        ended = self.ended_steps
        left = (number for number, step in enumerate(steps) if step.name not in ended)
        self.current_step = next(left, len(steps))


@dataclass
class WorkflowResult:
    """The result of a workflow."""

    success: bool
    results: dict[str, Any]
    errors: list[str]
    message: str
    session_id: str | None = None
    elapsed_seconds: float = 0.0
    #: By the name of each step.
    statuses: dict[str, StepStatus] = field(default_factory=dict)
    #: What to do after a failure: calls and commands.
    suggestions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StepProgress:
    """What is reported after each step."""

    session_id: str
    step: str
    status: StepStatus
    elapsed_seconds: float
    #: How many steps have ended, and how many there are.
    ended: int
    total: int
    error: str | None = None
