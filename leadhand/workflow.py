"""Builds workflows in Python: phases in sequence, each one a loop of a doer and its checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from leadhand.callables import CheckerLike, DoerLike, as_checkers, as_doer
from leadhand.complaints import complaint
from leadhand.documents import (
    AGENT_TIMEOUT_S,
    DEFAULT_MAX_ITERATIONS,
    DEFAULT_NO_PROGRESS,
    Budget,
    PhaseDocument,
    WorkflowDocument,
)
from leadhand.folders import working_folder
from leadhand.results import PhaseResult, phase_results
from leadhand.views import ResultView

if TYPE_CHECKING:
    from leadhand.client import Client

__all__ = ["Phase", "PhaseResult", "Workflow"]

Rule = Literal["all", "any"] | int


@dataclass
class Phase:
    """A named loop of a workflow; `result` is filled once the workflow ran as far as here."""

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
    result: PhaseResult | None = None

    def document(self) -> PhaseDocument:
        """The phase as the server takes it. Raises ValueError for what cannot be run."""
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
            raise ValueError(f"phase {self.name!r}: {complaint(error)}") from None
        except ValueError as error:
            raise ValueError(f"phase {self.name!r}: {error}") from None


class Workflow:
    """Phases in the order in which they are registered.

    >>> wf = Workflow("tdd")
    >>> wf.phase("red", task="Write failing tests", checker="pytest tests/").name
    'red'
    """

    def __init__(
        self,
        name: str,
        *,
        doer: DoerLike | None = None,
        agent: str | None = None,
        model: str | None = None,
        cwd: str | Path | None = None,
        budget: Budget | Mapping[str, float] | None = None,
    ) -> None:
        self.name = name
        self.phases: list[Phase] = []
        #: The session of the latest run.
        self.session_id: str | None = None
        self._model = model
        self._cwd = working_folder(cwd)
        self._budget = budget if isinstance(budget, Budget) else dict(budget or {})
        self._doer = as_doer(doer, agent)
        self._documents: tuple[PhaseDocument, ...] = ()

    def phase(
        self,
        name: str,
        *,
        task: str,
        checker: CheckerLike | Sequence[CheckerLike] | None = None,
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
    ) -> Phase:
        """Register a phase. Raises ValueError for one that cannot be run as it stands."""
        _not_both(name, checker=checker, checkers=checkers)
        _not_both(name, pipe=pipe, pipe_from=pipe_from)
        phase = Phase(
            name=name,
            task=task,
            checker=_given(name, checker if checkers is None else checkers),
            rule=rule,
            max_iterations=max_iterations,
            no_progress=no_progress,
            checker_model=checker_model,
            model=model,
            doer=doer,
            agent=agent,
            on_fail=on_fail,
            pipe_from=_names(pipe if pipe_from is None else pipe_from),
            file_scope=_names(file_scope),
            verify=_names(verify),
            timeout_s=timeout_s,
        )
        documents = (*self._documents, phase.document())
        self._document(documents)
        self._documents = documents
        self.phases.append(phase)
        return phase

    def document(self) -> WorkflowDocument:
        """The workflow as the server takes it. Raises ValueError for what cannot be run."""
        if not self._documents:
            raise ValueError(f"workflow {self.name!r} has no phases; add one with .phase(...)")
        return self._document(self._documents)

    def run(self, *, client: Client | None = None) -> dict[str, PhaseResult]:
        """Run the phases and return the results of those that ran, by name.

        A phase that failed ends the run unless its `on_fail` says otherwise; one that somebody
        inside ended with `leadhand exit` always does. Ctrl-C stops the session, says how to
        resume it and raises KeyboardInterrupt; a second one aborts it.
        """
        from leadhand.attending import Interrupted  # so that `import leadhand` stays fast

        try:
            return self._keep(self._conducted(self.document(), client))
        except Interrupted as interrupted:
            self._keep(interrupted.result)
            raise

    def _conducted(self, document: WorkflowDocument, client: Client | None) -> ResultView:
        from leadhand.attending import CONDUCTOR, aloud, run_to_end
        from leadhand.client import Client

        conductor = CONDUCTOR.get()
        if client is not None:
            return run_to_end(client, document, say=aloud)
        if conductor is not None:
            return conductor(document)
        with Client() as own:
            return run_to_end(own, document, say=aloud)

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
                }
            )
        except ValidationError as error:
            raise ValueError(complaint(error)) from None


def _given(
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
