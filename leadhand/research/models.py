"""Workflows of tool calls, their state, result, progress and errors.

AgentError
├── WorkflowExecutionError      a workflow could not be carried out
├── WorkflowValidationError     its definition is invalid
├── StateLoadError              a state file cannot be read
└── ToolNotFoundError           a step names a tool that the agent does not have (a ValueError, too)
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("leadhand.research")
#: What the variables begin with: LEADHAND_RESEARCH_MAX_RETRIES and so on.
PREFIX = "LEADHAND_RESEARCH_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


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


@dataclass
class AgentConfig:
    """Configuration of a research agent."""

    #: Repetitions of a failed call, for steps without a `retry_count` of their own.
    max_retries: int = 3
    #: Seconds for the whole workflow. Time in which it is stopped does not count.
    timeout_seconds: float = 300.0
    #: Whether the state file is written after each step. Results are never lost: Leadhand has them.
    enable_checkpoints: bool = True
    log_level: str = "INFO"
    state_dir: str = ".polyhedra/agent"
    #: Steps that run at the same time. With 1 independent steps run in their order.
    max_parallel: int = 8
    #: Seconds before the first repetition of a failed call; doubled each time, up to a minute.
    retry_delay: float = 1.0
    #: Whether a part that a result does not have is an error; otherwise it is None.
    strict_references: bool = False

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any], base: AgentConfig | None = None) -> AgentConfig:
        """Build a configuration from a mapping; invalid values are ignored with a warning.

        >>> AgentConfig.from_mapping({"max_retries": "5"}).max_retries
        5
        """
        known = {field.name: field.default for field in fields(cls)}
        found: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                _LOG.warning("unknown setting %r is ignored; known: %s", name, ", ".join(known))
                continue
            try:
                found[name] = _parsed(value, known[name])
            except ValueError as error:
                _LOG.warning("setting %r is ignored: it is %r; %s", name, value, error)
        return replace(base or cls(), **found)

    @classmethod
    def from_env(
        cls, environment: Mapping[str, str], base: AgentConfig | None = None
    ) -> AgentConfig:
        """Build a configuration from the LEADHAND_RESEARCH_ environment variables."""
        given = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environment.items()
            if name.startswith(PREFIX)
        }
        return cls.from_mapping(given, base)

    @classmethod
    def from_file(cls, path: str | Path) -> AgentConfig:
        """Read a configuration from a JSON or YAML file; an unreadable file gives the defaults.

        That is logged as a warning. YAML (`.yaml`, `.yml`) needs PyYAML.
        """
        path = Path(path)
        is_yaml = path.suffix.lower() in (".yaml", ".yml")
        try:
            text = path.read_text(encoding="utf-8")
            given = _from_yaml(text) if is_yaml else json.loads(text)
        except (OSError, ValueError) as error:
            _LOG.warning("configuration %s is ignored: %s", path, error)
            return cls()
        if not isinstance(given, dict):
            form = "a YAML mapping" if is_yaml else "a JSON object"
            _LOG.warning("configuration %s is ignored: give %s", path, form)
            return cls()
        return cls.from_mapping({str(name): value for name, value in given.items()})


def _from_yaml(text: str) -> Any:
    """The value of a YAML document. Raises ValueError, also without PyYAML."""
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise ValueError("PyYAML is not installed; install it, or write the file as JSON") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {error}") from None


def _parsed(value: Any, default: Any) -> Any:
    """A value in the type of the default. Raises ValueError that says what to give."""
    if isinstance(default, bool):
        text = str(value).lower()
        if text not in (*_TRUE, *_FALSE):
            raise ValueError("give true or false")
        return text in _TRUE
    if isinstance(default, str):
        if not isinstance(value, str) or not value:
            raise ValueError("give a text")
        return value
    try:
        number = type(default)(value)
    except (TypeError, ValueError):
        raise ValueError("give a number") from None
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise ValueError("give a number that is not negative")
    return number


class AgentError(Exception):
    """Base class of these errors."""


class WorkflowExecutionError(AgentError):
    """A workflow could not be carried out; `__cause__` is the error."""


class WorkflowValidationError(AgentError):
    """The definition of a workflow is invalid; `problems` has all errors."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class StateLoadError(AgentError):
    """A state file cannot be read."""


class ToolNotFoundError(AgentError, ValueError):
    """A step names a tool that the agent does not have."""


class InvalidWorkflowError(WorkflowExecutionError, WorkflowValidationError):
    """What `execute_workflow` raises for an invalid workflow: either base may be caught."""


class MissingToolError(WorkflowExecutionError, ToolNotFoundError):
    """What `execute_workflow` raises for a missing tool: either base may be caught."""


def execution_error(error: Exception) -> WorkflowExecutionError:
    """Converts any error to the one that `execute_workflow` raises.

    >>> str(execution_error(OSError("no disk")))
    'Workflow execution failed: no disk'
    >>> isinstance(execution_error(ToolNotFoundError("Tool 'x' not found")), ValueError)
    True
    """
    text = f"Workflow execution failed: {error}"
    match error:
        case ToolNotFoundError():
            return MissingToolError(text)
        case WorkflowValidationError():
            return InvalidWorkflowError(text)
        case _:
            return WorkflowExecutionError(text)
