"""`WorkflowExecutor`: carries out a workflow as a session of Leadhand, with the caller's tools."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from leadhand.client.client import AsyncClient, Client
from leadhand.errors import ArtifactUnknown, IdempotencyConflict, LeadhandError, SessionUnknown
from leadhand.graphs.faults import missing_reference
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import SessionView, SettledView, WorkGrant
from leadhand.research.approval import ApprovalDeniedError, CostApproval
from leadhand.research.document import check_tools, check_workflow, graph_document
from leadhand.research.local_worker import LocalWorker
from leadhand.research.models import (
    AgentConfig,
    StepProgress,
    StepStatus,
    Workflow,
    WorkflowResult,
    WorkflowState,
)
from leadhand.research.retry import CircuitBreaker
from leadhand.research.state_manager import StateManager, StepLog
from leadhand.research.tool_calls import (
    Called,
    ToolCalls,
    Tools,
    UserInterruptError,
    watch_interrupts,
)

#: Called after each step; may be asynchronous.
OnProgress = Callable[[StepProgress], Awaitable[None] | None]
#: Statuses of sessions that can be resumed, and those of sessions that have ended for good.
_RESUMABLE, _FINAL = ("stopped", "failed"), ("exited", "aborted")
#: The reasons of a session whose time is used up: it has no other budget.
_TIME_IS_UP = ("deadline", "budget")
#: Statuses of sessions that are about to end.
_ENDING = ("stopping", "exiting", "aborting")


class WorkflowExecutor:
    """Carries out workflows. Leadhand keeps each outcome; the tools run in this process."""

    def __init__(
        self,
        tools: Tools,
        state_manager: StateManager,
        logger: logging.Logger,
        *,
        config: AgentConfig | None = None,
        on_progress: OnProgress | None = None,
        breaker: Callable[[], CircuitBreaker] | None = CircuitBreaker,
        approval: CostApproval | None = None,
        url: str | None = None,
        token: str | None = None,
    ) -> None:
        """Nothing is started before `execute`.

        Args:
            tools: The tools by name; each returns JSON values.
            state_manager: Writes the mirror of the state.
            logger: Gets a line for each step, and all warnings.
            config: Limits and retries.
            on_progress: Called after each step.
            breaker: Makes the circuit breaker of a tool; None: there is none.
            approval: Asks before steps that may cost much; None: none is asked about.
            url: The API; by default that of LEADHAND_URL, or the user's services.
            token: The token for it.
        """
        self.tools = tools
        self.state_manager = state_manager
        self.logger = logger
        self.config = config or AgentConfig()
        self.calls = ToolCalls(tools, breaker)
        self.approval = approval
        if approval is not None:
            approval.logger = logger
        self._on_progress = on_progress
        self._url, self._token = url, token

    async def execute(self, workflow: Workflow, state: WorkflowState) -> WorkflowResult:
        """Run the steps that have not ended, update `state`, and return the result.

        Raises WorkflowValidationError and ToolNotFoundError before anything runs.
        """
        check_workflow(workflow, strict=self.config.strict_references)
        check_tools(workflow, self.tools)
        run = _Run(self, workflow, state)
        async with AsyncClient(self._url, self._token) as client:
            return await run.to_end(client)

    async def report(self, progress: StepProgress) -> None:
        """Pass the end of a step to the user's callback; its errors are logged."""
        if self._on_progress is None:
            return
        try:
            waiting = self._on_progress(progress)
            if waiting is not None:
                await waiting
        except Exception:
            self.logger.exception("on_progress failed")


class _Run:
    """One execution of a workflow."""

    def __init__(self, executor: WorkflowExecutor, workflow: Workflow, state: WorkflowState):
        self._executor = executor
        self._config = executor.config
        self._logger = executor.logger
        self._workflow = workflow
        self._state = state
        self._begun = time.monotonic()
        self._steps = {step.name: (number, step) for number, step in enumerate(workflow.steps)}
        folder = Path(executor.state_manager.state_dir)
        self._log = StepLog(folder, state.session_id, self._logger)
        self._statuses: dict[str, StepStatus] = {}
        #: What the steps that have begun and not ended did last, in words.
        self._unfinished: dict[str, str] = {}
        self._client: AsyncClient | None = None
        #: Steps with a result in the state that Leadhand has not recorded.
        self._unrecorded: set[str] = set()
        #: Which step was not approved.
        self._denied: str | None = None
        #: The first critical step that failed, and why.
        self._critical: tuple[str, Called] | None = None
        #: Held while the end of a step is saved and reported: in the order of the ends.
        self._reports = asyncio.Lock()

    async def to_end(self, client: AsyncClient) -> WorkflowResult:
        """Start or continue the session, carry out its steps, and collect its result."""
        state = self._state
        state.workflow, state.status = self._workflow, "running"
        state.advance()
        self._log.begin(self._workflow.name, list(self._steps), ended=state.ended_steps)
        takes_over = state.leadhand_session is not None
        view = await self._session(client)
        if view.status == "active":
            self._client = client
            try:
                await self._work(client, view, takes_over=takes_over)
            except ApprovalDeniedError as denied:
                self._denied = str(denied)
        ended = await client.wait(view.id)
        await self._take_over(client, ended)
        result = self._result(ended)
        self._log.end(self._state.status, result.message, elapsed=result.elapsed_seconds)
        return result

    async def _session(self, client: AsyncClient) -> SessionView:
        """The session of this workflow: a new one, or the one that is to be continued."""
        known = await self._known(client)
        if known is not None and known.status in _ENDING:
            await client.wait(known.id)
            known = await self._known(client)
        if known is not None and known.status in _RESUMABLE:
            return await client.resume(known.id, budget=self._more_time(known))
        if known is not None and known.status == "completed":
            return known
        state = self._state
        if known is None or known.status in _FINAL or state.run_key is None:
            state.run_key = uuid.uuid4().hex
        # Saved before the submit, so that a killed process finds its session by the same key.
        await self._executor.state_manager.save_state(state)
        document = graph_document(self._workflow, self._config, self._logger)
        self._allow_for_answers(document)
        try:
            view = await client.submit(document, f"research-{state.run_key}")
        except IdempotencyConflict:
            if known is None:
                raise
            view = known  # it was submitted with other limits, which stay
        state.leadhand_session = view.id
        await self._executor.state_manager.save_state(state)
        return view

    def _allow_for_answers(self, document: dict[str, Any]) -> None:
        """Give the steps that wait for an approval the time for it; their tools have their own."""
        approval = self._executor.approval
        if approval is None:
            return
        for step, node in zip(self._workflow.steps, document["steps"], strict=True):
            if approval.needs_answer(step):
                node["timeout_s"] += approval.answer_s
                document["budget"]["wall_s"] += approval.answer_s

    async def _known(self, client: AsyncClient) -> SessionView | None:
        if self._state.leadhand_session is None:
            return None
        try:
            return await client.session(self._state.leadhand_session)
        except SessionUnknown:
            return None  # deleted: the steps that ended are replayed from the state

    def _more_time(self, known: SessionView) -> dict[str, float] | None:
        """A new time limit for a session that has used up the one before."""
        line = known.budget.get("wall_s")
        if known.reason is None or known.reason.code not in _TIME_IS_UP or line is None:
            return None
        return {"wall_s": line.used + self._config.timeout_seconds}

    async def _work(self, client: AsyncClient, view: SessionView, *, takes_over: bool) -> None:
        token = view.work_token or client.token
        async with AsyncClient(client.url, token) as own:
            with Client(client.url, token) as beats:
                worker = LocalWorker(
                    own,
                    view.id,
                    beats=beats,
                    body=self._call,
                    on_settled=self._settled,
                    on_unrecorded=self._keep,
                    on_interrupted=partial(self._stop, client, view.id),
                    parallel=self._config.max_parallel,
                    logger=self._logger,
                )
                with watch_interrupts():
                    try:
                        await worker.run(takes_over=takes_over)
                    except UserInterruptError:
                        raise KeyboardInterrupt from None

    async def _stop(self, client: AsyncClient, session: str) -> None:
        """Stop the session of an execution that was cancelled, or whose services failed."""
        self._state.status = "stopped"
        try:
            await client.stop(session)
        except LeadhandError as error:  # it ends already, or the API is away
            self._logger.warning("session %s is not stopped: %s", session, error)
        await self._executor.state_manager.save_state(self._state)

    async def _call(self, grant: WorkGrant) -> Called:
        number, step = self._steps[grant.step]
        state = self._state
        if grant.step in state.completed_steps and grant.step in state.step_results:
            return Called(0.0, value=state.step_results[grant.step])
        total = len(self._workflow.steps)
        approval = self._executor.approval
        if approval is not None and self._client is not None:
            self._unfinished[step.name] = "waited for an approval"
            try:
                record = await approval.require(self._client, step, grant)
            except ApprovalDeniedError:
                self._log.decision(step.name, "denied", cost=approval.cost_of(step))
                raise
            self._log.decision(step.name, record.decision, cost=record.cost)
        self._logger.info("Executing step %d/%d: %s", number + 1, total, step.name)
        self._statuses[step.name] = StepStatus.RUNNING
        self._unfinished[step.name] = f"was running (attempt {grant.attempt})"
        called = await self._executor.calls.call(grant, timeout_s=step.timeout)
        self._log.call(
            step.name,
            step.tool,
            grant.arguments,
            elapsed=called.elapsed,
            result=called.value,
            error=called.error,
            attempt=grant.attempt,
        )
        return called

    async def _keep(self, grant: WorkGrant, called: Called) -> None:
        """Save a result that Leadhand has not recorded: the step's next attempt returns it."""
        state = self._state
        if called.error is not None or grant.step in state.ended_steps:
            return
        self._unrecorded.add(grant.step)
        state.step_results[grant.step] = called.value
        _add(state.completed_steps, grant.step)
        state.advance()
        await self._executor.state_manager.save_state(state)

    async def _settled(self, grant: WorkGrant, called: Called, settled: SettledView) -> None:
        """Note an outcome that Leadhand has recorded: in the state, its file, logs and progress."""
        if settled.result == "superseded":
            await self._keep(grant, called)
            return
        name, step = grant.step, self._steps[grant.step][1]
        if settled.result == "again":
            self._logger.warning("Step '%s' failed: %s; it is tried again", name, called.error)
            self._unfinished[name] = f"waited for its next attempt; the last failed: {called.error}"
            self._log.decision(name, "tried again", why=called.error)
            return
        self._unfinished.pop(name, None)
        state = self._state
        if called.error is None:
            state.step_results[name] = called.value
            _add(state.completed_steps, name)
            self._statuses[name] = StepStatus.COMPLETED
            self._logger.info("Step '%s' completed in %.2fs", name, called.elapsed)
        else:
            error = f"Step '{name}' failed: {called.error}"
            self._logger.error("%s", error)
            _add(state.errors, error)
            self._statuses[name] = StepStatus.FAILED
            if step.critical:
                self._log.decision(name, "ends the workflow", why=called.error)
                self._critical = self._critical or (name, called)
            else:
                self._log.decision(name, "goes on without its result", why=called.error)
                state.step_results[name] = {"error": called.error}
                _add(state.failed_steps, name)
        state.advance()
        ended = len(state.ended_steps)
        progress = StepProgress(
            session_id=state.session_id,
            step=name,
            status=self._statuses[name],
            elapsed_seconds=called.elapsed,
            ended=ended,
            total=len(self._workflow.steps),
            error=called.error,
        )
        async with self._reports:
            if self._config.enable_checkpoints:
                await self._executor.state_manager.save_state(state)
            await self._executor.report(progress)

    def _result(self, view: ResultView) -> WorkflowResult:
        """The result of the session, in the words of this front end."""
        state = self._state
        success = view.status == "completed"
        state.status = {"completed": "completed", "stopped": "stopped"}.get(view.status, "failed")
        statuses = {name: self._status_of(name, view) for name in self._steps}
        message, name = self._message(view)
        interrupted = [one for one, status in statuses.items() if status is StepStatus.INTERRUPTED]
        for one in interrupted if view.status == "failed" else ():
            _add(state.errors, f"Step '{one}' was interrupted: it {self._unfinished[one]}")
        return WorkflowResult(
            success=success,
            results=dict(state.step_results),
            errors=list(state.errors),
            message=message,
            session_id=state.session_id,
            elapsed_seconds=time.monotonic() - self._begun,
            statuses=statuses,
            suggestions=[]
            if success
            else suggestions_for(
                self._workflow, state, view, step=name, why=self._why(name), interrupted=interrupted
            ),
        )

    async def _take_over(self, client: AsyncClient, view: ResultView) -> None:
        """Take over what Leadhand has recorded and this process has not seen: it was killed."""
        state = self._state
        for name, value in view.results.items():
            ended = name in state.ended_steps and name not in self._unrecorded
            if ended or name not in self._steps:
                continue
            error = _error_in(view, name)
            if error is None:
                state.step_results[name] = await _whole(client, view.session_id, value)
                _add(state.completed_steps, name)
            elif not self._steps[name][1].critical:
                state.step_results[name] = value
                state.failed_steps.append(name)
                _add(state.errors, f"Step '{name}' failed: {error}")
        state.advance()

    def _status_of(self, name: str, view: ResultView) -> StepStatus:
        if name in self._state.completed_steps:
            return StepStatus.COMPLETED
        # The process sees no outcome of a step that failed before its tool was called.
        failed = name in view.failed or name in self._state.failed_steps
        if failed or self._statuses.get(name) is StepStatus.FAILED:
            return StepStatus.FAILED
        if name in self._statuses and name in self._unfinished:
            return StepStatus.FAILED if _is_late(view) else StepStatus.INTERRUPTED
        return StepStatus.SKIPPED if view.status == "completed" else StepStatus.PENDING

    def _why(self, name: str | None) -> str | None:
        """Why a step failed: the kind of its outcome, or `not_called`."""
        if self._critical is not None:
            return self._critical[1].why
        return "not_called" if name is not None and name not in self._statuses else None

    def _message(self, view: ResultView) -> tuple[str, str | None]:
        """What the result says, and the step that it is about."""
        if self._denied is not None:
            return f"Workflow '{self._workflow.name}' is stopped: {self._denied}", None
        if view.status == "completed":
            return f"Workflow '{self._workflow.name}' completed successfully", None
        name = self._critical[0] if self._critical is not None else self._failed_step(view)
        if view.status == "failed" and name is not None:
            return f"Critical step failed: {name}", name
        if _is_late(view):
            limit = f"{self._config.timeout_seconds:g} s"
            message = f"Workflow '{self._workflow.name}' took longer than {limit}"
            _add(self._state.errors, f"{message}: {self._what_was_under_way()}")
            return message, None
        code = view.reason.code if view.reason is not None else view.status
        text = view.reason.text if view.reason is not None else ""
        return f"Workflow '{self._workflow.name}' is {view.status}: {text or code}", None

    def _what_was_under_way(self) -> str:
        """The steps that the time limit has interrupted, each with its state."""
        ended = self._state.ended_steps
        found = [
            f"step '{name}' {what}" for name, what in self._unfinished.items() if name not in ended
        ]
        return "; ".join(found) or "no step was running"

    def _failed_step(self, view: ResultView) -> str | None:
        """The critical step whose failure this process has not seen: its tool was not called."""
        for name in view.failed:
            step, error = self._steps.get(name), _error_in(view, name)
            if step is None or error is None or name in self._state.ended_steps:
                continue
            if step[1].critical:
                self._logger.error("Step '%s' failed: %s", name, error)
                _add(self._state.errors, f"Step '{name}' failed: {error}")
                return name
        return None


def _is_late(view: ResultView) -> bool:
    """Whether the session has used up its time."""
    return view.reason is not None and view.reason.code in _TIME_IS_UP


def _error_in(view: ResultView, name: str) -> str | None:
    """The error of a step that failed, whose result is `{"error": text}`; None for others."""
    value = view.results.get(name)
    if name not in view.failed or not isinstance(value, dict):
        return None
    return str(value.get("error"))


async def _whole(client: AsyncClient, session: str, value: Any) -> Any:
    """A result; one that is too long for the view is shown there by the digest of its artifact."""
    match value:
        case {"artifact": str(digest), "bytes": int()} if len(value) == 2:
            try:
                return json.loads(await client.artifact(session, digest))
            except ArtifactUnknown:
                return value  # the tool has returned a value of this form
        case _:
            return value


def _add(found: list[Any], one: Any) -> None:
    if one not in found:
        found.append(one)


def suggestions_for(
    workflow: Workflow,
    state: WorkflowState,
    view: ResultView,
    *,
    step: str | None,
    why: str | None,
    interrupted: list[str],
) -> list[str]:
    """Returns hints on what to do about a workflow that did not complete."""
    going_on = f"continue with await agent.resume_workflow({state.session_id!r})"
    done = len(state.completed_steps)
    kept = f"the results of {done} completed step{'' if done == 1 else 's'} are kept"
    found: list[str] = []
    failing = next((one for one in workflow.steps if one.name == step), None)
    code = view.reason.code if view.reason is not None else ""
    reference = None if failing is None else _missing_value(view, failing.name)
    if failing is not None and why == "not_called" and reference is not None:
        found.append(
            f"step {failing.name!r} failed before tool {failing.tool!r} was called: correct"
            f" {reference} in its arguments, or give it a default, such as"
            f" {reference[:-1]} ?? null}}"
        )
        going_on = f"then run it with await agent.execute_workflow(workflow, {state.session_id!r})"
    elif failing is not None:
        found += _about_step(failing.name, failing.tool, failing.timeout, why)
    elif code in ("deadline", "budget"):
        found.append("raise timeout_seconds of the AgentConfig; a resume gets that much more time")
    elif view.status == "stopped" and not interrupted:
        found.append("nothing failed: the workflow was stopped")
    if interrupted:
        names = ", ".join(map(repr, interrupted))
        found.append(
            f"interrupted at work: {names}; a resume calls the tools again, from the start"
        )
    found.append(f"{going_on}: {kept}")
    found.append(f"see why it ended: leadhand explain {view.session_id}")
    return found


def _missing_value(view: ResultView, step: str) -> str | None:
    """The reference without a value because of which a step failed."""
    result = view.results.get(step)
    error = result.get("error") if isinstance(result, dict) else None
    return missing_reference(error) if isinstance(error, str) else None


def _about_step(name: str, tool: str, timeout: float, why: str | None) -> list[str]:
    match why:
        case "timeout":
            return [f"step {name!r} took longer than {timeout:g} s: raise its timeout"]
        case "circuit_open":
            return [f"tool {tool!r} failed several times in a row: repair it, or wait a minute"]
        case "not_called":
            return [f"step {name!r} failed before tool {tool!r} was called: see its error"]
        case _:
            return [
                f"correct what made tool {tool!r} fail in step {name!r}, or give the step a"
                " retry_count",
                f"if the workflow can do without step {name!r}: set critical=False and start anew",
            ]
