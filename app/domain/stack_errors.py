"""The errors of stacks of workflow sessions."""

from __future__ import annotations

from app.domain.shared_errors import SharedRefusal
from leadhand.models.problems import Kind


class NoActiveWorkflow(SharedRefusal):
    """No workflow session is on the stack."""

    kind = Kind.STACK_EMPTY
    field = "stack"
    hint = "start a workflow on it first"

    def __str__(self) -> str:
        return "No active workflow session. Use start_workflow to begin one."


class WorkflowUnknown(SharedRefusal):
    """The stack has no workflow session of this id, neither an active nor an ended one."""

    kind = Kind.WORKFLOW_UNKNOWN
    field = "workflow"
    hint = "`leadhand stack ls` lists the workflow sessions of the stack"

    def __str__(self) -> str:
        return f"Session not found: {self.value}"


class WorkflowNotStacked(SharedRefusal):
    """The workflow session is not on the stack: it has ended, or was replaced or deleted."""

    kind = Kind.WORKFLOW_NOT_STACKED
    field = "workflow"
    hint = "`leadhand stack show` lists those on the stack"

    def __str__(self) -> str:
        return f"Session '{self.value}' not found in active stack"


class StackRefused(SharedRefusal):
    """The stack does not allow this."""

    kind = Kind.STACK_REFUSED

    def __init__(self, value: str, field: str, why: str, hint: str) -> None:
        super().__init__(value, field, why, hint)
        self.field = field
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return self.why
