"""Research workflows: tools of the caller's own process, carried out and kept by Leadhand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadhand.research.agent import ResearchAgent
    from leadhand.research.approval import ApprovalRecord, CostApproval
    from leadhand.research.document import Decomposer, KeywordDecomposer
    from leadhand.research.executor import WorkflowExecutor
    from leadhand.research.models import (
        AgentConfig,
        AgentError,
        StateLoadError,
        StepProgress,
        StepStatus,
        ToolNotFoundError,
        Workflow,
        WorkflowExecutionError,
        WorkflowResult,
        WorkflowState,
        WorkflowStep,
        WorkflowValidationError,
    )
    from leadhand.research.retry import (
        CircuitBreaker,
        CircuitOpenError,
        RetryConfig,
        retry_with_backoff,
    )
    from leadhand.research.state_manager import StateManager

__all__ = [
    "AgentConfig",
    "AgentError",
    "ApprovalRecord",
    "CircuitBreaker",
    "CircuitOpenError",
    "CostApproval",
    "Decomposer",
    "KeywordDecomposer",
    "ResearchAgent",
    "RetryConfig",
    "StateLoadError",
    "StateManager",
    "StepProgress",
    "StepStatus",
    "ToolNotFoundError",
    "Workflow",
    "WorkflowExecutionError",
    "WorkflowExecutor",
    "WorkflowResult",
    "WorkflowState",
    "WorkflowStep",
    "WorkflowValidationError",
    "retry_with_backoff",
]

#: The module of each public name.
_HOMES = {
    "AgentConfig": "leadhand.research.models",
    "AgentError": "leadhand.research.models",
    "ApprovalRecord": "leadhand.research.approval",
    "CircuitBreaker": "leadhand.research.retry",
    "CircuitOpenError": "leadhand.research.retry",
    "CostApproval": "leadhand.research.approval",
    "Decomposer": "leadhand.research.document",
    "KeywordDecomposer": "leadhand.research.document",
    "ResearchAgent": "leadhand.research.agent",
    "RetryConfig": "leadhand.research.retry",
    "StateLoadError": "leadhand.research.models",
    "StateManager": "leadhand.research.state_manager",
    "StepProgress": "leadhand.research.models",
    "StepStatus": "leadhand.research.models",
    "ToolNotFoundError": "leadhand.research.models",
    "Workflow": "leadhand.research.models",
    "WorkflowExecutionError": "leadhand.research.models",
    "WorkflowExecutor": "leadhand.research.executor",
    "WorkflowResult": "leadhand.research.models",
    "WorkflowState": "leadhand.research.models",
    "WorkflowStep": "leadhand.research.models",
    "WorkflowValidationError": "leadhand.research.models",
    "retry_with_backoff": "leadhand.research.retry",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that the import of this package is cheap."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
