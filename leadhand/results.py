"""The results of loops and phases, as the Python API returns them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from leadhand.models.views.fleet import WorkerView
from leadhand.models.views.result import LedgerEntry, PhaseView, ResultView
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import Event, StepView
from leadhand.models.views.view import Page

__all__ = [
    "Event",
    "LedgerEntry",
    "LoopResult",
    "LoopVerdict",
    "Page",
    "PhaseResult",
    "PhaseView",
    "ResultView",
    "SessionView",
    "StepView",
    "WorkerView",
    "phase_results",
]

LoopVerdict = Literal["accept", "terminate", "max_iterations", "exit"]


@dataclass(frozen=True)
class LoopResult:
    """The result of one loop; `exit_reason` is set only if `leadhand exit` ended the loop."""

    session_id: str
    verdict: LoopVerdict
    iterations: int
    history: list[dict[str, Any]] = field(default_factory=list)
    result_text: str = ""
    exit_reason: str = ""
    #: If not accepted: the iteration with the most accepting checkers, and the other checkers.
    best_iteration: dict[str, Any] | None = None
    missing: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def from_view(cls, view: ResultView) -> LoopResult:
        """Build the result of a loop from the API's view of it."""
        return cls(
            session_id=view.session_id,
            verdict=view.verdict or "terminate",
            iterations=view.iterations,
            history=_history(view.history),
            result_text=view.result_text,
            exit_reason=view.exit_reason,
            best_iteration=_best(view),
            missing=[one.model_dump() for one in view.missing],
        )


@dataclass(frozen=True)
class PhaseResult:
    """The result of one phase of a workflow."""

    phase_name: str
    loop_result: LoopResult
    passed: bool

    @property
    def result_text(self) -> str:
        """Return the result text of the phase's loop."""
        return self.loop_result.result_text

    @property
    def verdict(self) -> LoopVerdict:
        """Return the verdict of the phase's loop: accept, terminate, max_iterations or exit."""
        return self.loop_result.verdict

    @property
    def exit_reason(self) -> str:
        """Return the reason with which `leadhand exit` ended the loop; empty if it did not."""
        return self.loop_result.exit_reason

    @property
    def best_iteration(self) -> dict[str, Any] | None:
        """Return the iteration with the fewest failed checks; None if the phase was accepted."""
        return self.loop_result.best_iteration

    @property
    def missing(self) -> list[dict[str, Any]]:
        """Return the checks that the best iteration did not pass."""
        return self.loop_result.missing

    @classmethod
    def from_view(cls, view: PhaseView, *, session_id: str) -> PhaseResult:
        """Build the result of a phase from the API's view of it."""
        loop = LoopResult(
            session_id=session_id,
            verdict=_loop_verdict(view.verdict),
            iterations=view.iterations,
            history=_history(view.history),
            result_text=view.result_text,
            exit_reason=view.exit_reason,
            best_iteration=_best(view),
            missing=[one.model_dump() for one in view.missing],
        )
        return cls(phase_name=view.name, loop_result=loop, passed=view.passed)


def phase_results(view: ResultView) -> dict[str, PhaseResult]:
    """Returns the results of the phases that ran, by name, in running order."""
    return {
        phase.name: PhaseResult.from_view(phase, session_id=view.session_id)
        for phase in view.phases
    }


def _loop_verdict(word: str) -> LoopVerdict:
    """A loop's verdict; retry means that it reached max_iterations."""
    match word:
        case "accept" | "terminate" | "max_iterations" | "exit":
            return word
        case "retry":
            return "max_iterations"
        case _:
            return "terminate"


def _best(view: ResultView | PhaseView) -> dict[str, Any] | None:
    return None if view.best_iteration is None else view.best_iteration.model_dump()


def _history(entries: list[LedgerEntry]) -> list[dict[str, Any]]:
    return [entry.model_dump(mode="json") for entry in entries]
