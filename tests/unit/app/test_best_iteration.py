"""Which iteration came nearest to acceptance, and what stood between."""

from __future__ import annotations

from app.core.program import Action, Loop, Program, Step
from app.core.records import TurnRecord
from app.sessions.results import best_of, result_of
from leadhand.cli.render.result_text import loop_summary
from leadhand.models.verdicts import Reason
from leadhand.models.views.result import LedgerEntry, ResultView
from leadhand.results import LoopResult

PROGRAM = Program(body=(Loop(id="loop", body=(Step(id="do", action=Action.AGENT),)),))


def entry(iteration: int, *verdicts: str, run: int = 1) -> LedgerEntry:
    checks = [
        {"name": f"check{n}", "verdict": verdict, "feedback": f"{verdict} in {iteration}"}
        for n, verdict in enumerate(verdicts, 1)
    ]
    return LedgerEntry.model_validate(
        {"loop": "loop", "run": run, "iteration": iteration, "verdict": "retry", "checks": checks,
         "work": f"work {iteration}"}
    )  # fmt: skip


def ended(verdict: str, *ledger: LedgerEntry) -> ResultView:
    status = "completed" if verdict == "accept" else "failed"
    turn = TurnRecord(state="closed", verdict=verdict, iteration=len(ledger))
    found = result_of(
        "1a2b3c4d", {"status": status, "kind": "loop"}, None, PROGRAM, {"loop": turn}, ledger, {},
        [],
    )  # fmt: skip
    return ResultView.model_validate_json(found.model_dump_json())


def test_most_accepted_checks_are_best_and_the_newest_of_several():
    ledger = [
        entry(1, "retry", "retry"), entry(2, "accept", "retry"), entry(3, "retry", "accept"),
        entry(4, "retry", "retry"), entry(5),
    ]  # fmt: skip
    best = best_of(ledger)
    assert best is not None
    assert best.iteration == 3
    assert best_of([entry(1)]) is None


def test_an_end_without_acceptance_says_what_was_missing():
    result = LoopResult.from_view(
        ended("max_iterations", entry(1, "accept", "retry"), entry(2, "retry", "retry"))
    )
    assert result.best_iteration == {
        "run": 1, "iteration": 1, "accepted": 1, "checks": 2, "work": "work 1",
    }  # fmt: skip
    assert result.missing == [{"name": "check2", "verdict": "retry", "feedback": "retry in 1"}]


def test_people_are_told_of_it():
    lines = list(loop_summary(ended("terminate", entry(1, "accept", "retry"))))
    assert "nearest: iteration 1, 1 of 2 accepted" in lines
    assert "  missing check2: retry in 1" in lines


def test_accepted_work_lacks_nothing():
    result = ended("accept", entry(1, "retry"), entry(2, "accept"))
    assert (result.best_iteration, result.missing) == (None, [])


def test_who_used_up_a_budget_is_told_how_to_raise_it():
    result = ended("terminate", entry(1, "retry"))
    spent = result.model_copy(update={"reason": Reason(code="budget", text="used up")})
    assert "to resume with a higher limit, see: leadhand explain 1a2b3c4d" in loop_summary(spent)
