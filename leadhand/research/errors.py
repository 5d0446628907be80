"""The errors of research workflows.

AgentError
├── WorkflowExecutionError      a workflow could not be carried out
├── WorkflowValidationError     its definition is invalid
├── StateLoadError              a state file cannot be read
└── ToolNotFoundError           a step names a tool that the agent does not have (a ValueError, too)
"""

from __future__ import annotations


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
