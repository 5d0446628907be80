"""`ResearchAgent`: carries out workflows of tool calls, and continues them after a failure."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from leadhand.research.approval import CostApproval
from leadhand.research.document import Decomposer, KeywordDecomposer, hash_of
from leadhand.research.executor import OnProgress, WorkflowExecutor
from leadhand.research.models import (
    AgentConfig,
    Workflow,
    WorkflowExecutionError,
    WorkflowResult,
    WorkflowState,
    execution_error,
)
from leadhand.research.retry import CircuitBreaker
from leadhand.research.state_manager import StateManager
from leadhand.research.tool_calls import Tools


class ResearchAgent:
    """Carries out workflows of tool calls. The tools are functions of this process."""

    def __init__(
        self,
        tools: Tools,
        config: AgentConfig | None = None,
        state_manager: StateManager | None = None,
        logger: logging.Logger | None = None,
        *,
        on_progress: OnProgress | None = None,
        decomposer: Decomposer | None = None,
        breaker: Callable[[], CircuitBreaker] | None = CircuitBreaker,
        approval: CostApproval | None = None,
        url: str | None = None,
        token: str | None = None,
    ) -> None:
        """Nothing is started before the first workflow.

        Args:
            tools: Functions by name, asynchronous or not.
            config: Limits, retries and the folder of states.
            state_manager: Keeps the state files.
            logger: Gets a line for each step, and all warnings.
            on_progress: Called after each step.
            decomposer: Makes a workflow of a command in words.
            breaker: Makes the circuit breaker of each tool; None: there is none.
            approval: Asks before steps that may cost much; None: none is asked about.
            url: The API; by default that of LEADHAND_URL, or the user's services.
            token: The token for it.
        """
        self.tools = tools
        self.config = config or AgentConfig()
        self.logger = logger or logging.getLogger("leadhand.research")
        self.state_manager = state_manager or StateManager(self.config.state_dir, self.logger)
        if logger is None:
            self.logger.setLevel(self.config.log_level.upper())
        self.decomposer = decomposer or KeywordDecomposer()
        self.executor = WorkflowExecutor(
            tools,
            self.state_manager,
            self.logger,
            config=self.config,
            on_progress=on_progress,
            breaker=breaker,
            approval=approval,
            url=url,
            token=token,
        )

    async def execute_workflow(
        self, workflow: Workflow, session_id: str | None = None
    ) -> WorkflowResult:
        """Run a workflow, or continue one whose state is stored under this id.

        The stored state is deleted on success, and saved otherwise.
        Raises WorkflowExecutionError for any error but that of a step, chained to it; for an
        invalid workflow or a missing tool it is a WorkflowValidationError or ToolNotFoundError,
        too.
        """
        session_id = session_id or self._generate_session_id()
        self.logger.info("Starting workflow '%s' (session: %s)", workflow.name, session_id)
        try:
            state = await self._state(workflow, session_id)
            result = await self.executor.execute(workflow, state)
            if result.success:
                await self.state_manager.cleanup_state(session_id)
            else:
                await self.state_manager.save_state(state)
        except Exception as error:
            self.logger.error("Workflow failed: %s", error)
            raise execution_error(error) from error
        return result

    async def resume_workflow(self, session_id: str) -> WorkflowResult:
        """Continue a workflow that was interrupted, or failed, in this or another process.

        Raises ValueError without a state of this id, and as `execute_workflow`.
        """
        state = await self.state_manager.load_state(session_id)
        if state is None:
            raise ValueError(f"No state found for session {session_id}")
        if state.workflow is None:
            raise WorkflowExecutionError(
                f"Workflow execution failed: the state of session {session_id} has no workflow;"
                " give it to execute_workflow with this session_id"
            )
        self.logger.info("Resuming workflow (session: %s)", session_id)
        return await self.execute_workflow(state.workflow, session_id)

    async def list_sessions(self) -> list[dict[str, Any]]:
        """Return the workflows that have not completed, the last changed first."""
        return await self.state_manager.list_sessions()

    async def decompose(self, command: str) -> Workflow:
        """Convert a command in words to a workflow. Raises WorkflowValidationError."""
        workflow = await self.decomposer.decompose(command, self.tools)
        workflow.validate()
        return workflow

    async def run(self, command: str, session_id: str | None = None) -> WorkflowResult:
        """Convert a command in words to a workflow and run it."""
        return await self.execute_workflow(await self.decompose(command), session_id)

    async def _state(self, workflow: Workflow, session_id: str) -> WorkflowState:
        state = await self.state_manager.load_state(session_id)
        if state is None:
            return WorkflowState(session_id=session_id, workflow=workflow, status="running")
        if state.workflow is not None and hash_of(state.workflow) != hash_of(workflow):
            # Another definition: what has the same names counts as done, in a new session.
            state.leadhand_session = state.run_key = None
        state.workflow = workflow
        state.advance()
        self.logger.info("Resuming from step %d", state.current_step)
        return state

    def _generate_session_id(self) -> str:
        """A new id: the time, and 8 characters of a UUID."""
        now = datetime.now()  # noqa: DTZ005 - the local time, as its users expect
        return f"{now:%Y%m%d_%H%M%S}_{str(uuid.uuid4())[:8]}"
