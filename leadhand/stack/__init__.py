"""Nested workflows of an agent on a stack that the API keeps, with the names of the seed."""

from __future__ import annotations

from leadhand.models.stacks import StackEntry, StepProgress, WorkflowSession
from leadhand.stack.errors import StateError
from leadhand.stack.state_manager import StateManager

__all__ = ["StackEntry", "StateError", "StateManager", "StepProgress", "WorkflowSession"]
