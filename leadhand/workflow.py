"""Builds workflows in Python: phases in sequence, each one a loop of a doer and its checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from leadhand.callables import CheckerLike, DoerLike, as_checkers, as_doer
from leadhand.models.documents import (
    AGENT_TIMEOUT_S,
    CHECK_TIMEOUT_S,
    DEFAULT_MAX_ITERATIONS,
    DEFAULT_NO_PROGRESS,
    Budget,
    Conversation,
    PhaseDocument,
    Protected,
    WorkflowDocument,
    WorktreeOptions,
)
from leadhand.models.suggestions import suggest_keywords
from leadhand.models.validation_messages import first_error
from leadhand.models.views.result import ResultView
from leadhand.results import PhaseResult, phase_results
from leadhand.run import working_folder

if TYPE_CHECKING:
    from leadhand.client.client import Client

__all__ = ["Phase", "PhaseResult", "Workflow"]

Rule = Literal["all", "any"] | int


@dataclass
class Phase:
    """A named loop of a workflow; `result` is set once the phase has run."""

    name: str
    task: str
    checker: CheckerLike | Sequence[CheckerLike]
    rule: Rule = "all"
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    no_progress: int = DEFAULT_NO_PROGRESS
    checker_model: str | None = None
    model: str | None = None
    doer: DoerLike | None = None
    agent: str | None = None
    on_fail: str = "stop"
    pipe_from: list[str] = field(default_factory=list)
    file_scope: list[str] = field(default_factory=list)
    verify: list[str] = field(default_factory=list)
    timeout_s: float = AGENT_TIMEOUT_S
    checker_timeout_s: float = CHECK_TIMEOUT_S
    doer_attempts: int = 1
    conversation: Conversation = "fresh"
    baseline: bool = True
    protected: Sequence[str | Protected | Mapping[str, Any]] = ()
    on_protected: Literal["terminate", "ask"] = "terminate"
    result: PhaseResult | None = None

    def document(self) -> PhaseDocument:
        """Return the phase as the document that the API accepts. Raises ValueError."""
        own = {"checker", "doer", "agent", "result"}
        fields = {name: value for name, value in vars(self).items() if name not in own}
        try:
            return PhaseDocument.model_validate(
                {
                    **fields,
                    "checkers": as_checkers(self.checker),
                    "doer": as_doer(self.doer, self.agent),
                }
            )
        except ValidationError as error:
            raise ValueError(f"phase {self.name!r}: {first_error(error, PhaseDocument)}") from None
        except ValueError as error:
            raise ValueError(f"phase {self.name!r}: {error}") from None


class Workflow:
    """A sequence of phases, which run in the order in which they are added.

    >>> wf = Workflow("tdd")
    >>> wf.phase("red", task="Write failing tests", checker="pytest tests/").name
    'red'
    """

    @suggest_keywords
    def __init__(
        self,
        name: str,
        *,
        doer: DoerLike | None = None,
        agent: str | None = None,
        model: str | None = None,
        cwd: str | Path | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        worktree: bool | WorktreeOptions | Mapping[str, Any] = False,
    ) -> None:
        self.name = name
        self.phases: list[Phase] = []
        #: The session id of the latest run.
        self.session_id: str | None = None
        self._model = model
        self._cwd = working_folder(cwd)
        self._budget = budget if isinstance(budget, Budget) else dict(budget or {})
        self._worktree = worktree
        self._doer = as_doer(doer, agent)
        self._documents: tuple[PhaseDocument, ...] = ()

    @suggest_keywords
    def phase(
        self,
        name: str,
        task: str,
        checker: CheckerLike | Sequence[CheckerLike] | None = None,
        *,
        checkers: Sequence[CheckerLike] | None = None,
        rule: Rule = "all",
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        no_progress: int = DEFAULT_NO_PROGRESS,
        checker_model: str | None = None,
        model: str | None = None,
        doer: DoerLike | None = None,
        agent: str | None = None,
        on_fail: str = "stop",
        pipe: str | Sequence[str] | None = None,
        pipe_from: str | Sequence[str] | None = None,
        file_scope: Sequence[str] = (),
        verify: Sequence[str] = (),
        timeout_s: float = AGENT_TIMEOUT_S,
        checker_timeout_s: float = CHECK_TIMEOUT_S,
        doer_attempts: int = 1,
        conversation: Conversation = "fresh",
        baseline: bool = True,
        protected: Sequence[str | Protected | Mapping[str, Any]] = (),
        on_protected: Literal["terminate", "ask"] = "terminate",
    ) -> Phase:
        """Add a phase (a loop of a doer and its checkers) and return it; ValueError if invalid."""
        _not_both(name, checker=checker, checkers=checkers)
        _not_both(name, pipe=pipe, pipe_from=pipe_from)
        phase = Phase(
            name=name,
            task=task,
            checker=_require_checker(name, checker if checkers is None else checkers),
            rule=rule,
            max_iterations=max_iterations, no_progress=no_progress,
            checker_model=checker_model, model=model,
            doer=doer, agent=agent,
            on_fail=on_fail,
            pipe_from=_names(pipe if pipe_from is None else pipe_from),
            file_scope=_names(file_scope),
            verify=_names(verify),
            timeout_s=timeout_s, checker_timeout_s=checker_timeout_s,
            doer_attempts=doer_attempts,
            conversation=conversation,
            baseline=baseline,
            protected=protected,
            on_protected=on_protected,
        )  # fmt: skip
        return self._append(phase)

    def _append(self, phase: Phase) -> Phase:
        """Add a phase if the workflow is valid with it. Raises ValueError otherwise."""
        documents = (*self._documents, phase.document())
        self._document(documents)
        self._documents = documents
        self.phases.append(phase)
        return phase

    def document(self) -> WorkflowDocument:
        """Return the workflow as the document that the API accepts. Raises ValueError."""
        if not self._documents:
            raise ValueError(f"workflow {self.name!r} has no phases; add one with .phase(...)")
        return self._document(self._documents)

    def run(self, *, client: Client | None = None) -> dict[str, PhaseResult]:
        """Run the phases and return the results of those that ran, by name.

        A failed phase ends the run unless its `on_fail` says otherwise; `leadhand exit` always ends
        it. Ctrl-C stops the session, says how to resume it and raises KeyboardInterrupt; a second
        Ctrl-C aborts it.
        """
        from leadhand.run import Interrupted

        try:
            return self._keep(self._run_document(self.document(), client))
        except Interrupted as interrupted:
            self._keep(interrupted.result)
            raise

    def _run_document(self, document: WorkflowDocument, client: Client | None) -> ResultView:
        from leadhand.client.client import Client
        from leadhand.run import CONDUCTOR, print_message, run_to_end

        conductor = CONDUCTOR.get()
        if client is not None:
            return run_to_end(client, document, say=print_message)
        if conductor is not None:
            return conductor(document)
        with Client() as own:
            return run_to_end(own, document, say=print_message)

    def _keep(self, result: ResultView) -> dict[str, PhaseResult]:
        self.session_id = result.session_id
        results = phase_results(result)
        for phase in self.phases:
            phase.result = results.get(phase.name)
        return results

    def _document(self, phases: tuple[PhaseDocument, ...]) -> WorkflowDocument:
        try:
            return WorkflowDocument.model_validate(
                {
                    "name": self.name,
                    "phases": phases,
                    "doer": self._doer,
                    "model": self._model,
                    "cwd": self._cwd,
                    "budget": self._budget,
                    "worktree": self._worktree,
                }
            )
        except ValidationError as error:
            raise ValueError(first_error(error, WorkflowDocument)) from None


def _require_checker(
    phase: str, checker: CheckerLike | Sequence[CheckerLike] | None
) -> CheckerLike | Sequence[CheckerLike]:
    if checker is None:
        raise ValueError(f"phase {phase!r} has no checker; give a command or 'agent: ...'")
    return checker


def _not_both(phase: str, **values: object) -> None:
    given = [name for name, value in values.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"phase {phase!r}: give {' or '.join(given)}, not both")


def _names(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())
