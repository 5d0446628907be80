"""`leadhand.plan`: the documents that it makes, and the results that it returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadhand.cli.running import agents_of, unknown_costs
from leadhand.models.cycles import find_cycles
from leadhand.models.plans import PlanDocument
from leadhand.models.verdicts import Reason
from leadhand.models.views.fleet import AgentView
from leadhand.models.views.plan import PlanView, TaskView
from leadhand.models.views.result import ResultView
from leadhand.plan import PlanResult, plan_document


def test_document_has_what_is_given(tmp_path: Path) -> None:
    document = plan_document(
        "Build it", "pytest -q", doer={"agent": "claude"}, cwd=tmp_path,
        tasks=[{"id": "a", "title": "A"}], refine=False, at_once=2,
    )  # fmt: skip
    assert (document.kind, document.request, document.cwd) == ("plan", "Build it", str(tmp_path))
    assert document.checkers[0].command == "pytest -q"
    assert document.tasks is not None
    assert document.tasks[0].id == "a"
    assert (document.refine, document.at_once) == (False, 2)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"checkers": ()}, "a plan needs checkers"),
        ({"at_ones": 2}, "at_ones is no field"),
        ({"tasks": []}, "tasks"),
        ({"cwd": "/nowhere/at/all"}, "no such folder"),
    ],
)
def test_faulty_plan_is_refused_in_one_sentence(more: dict[str, object], why: str) -> None:
    given: dict[str, object] = {"checkers": "true", "doer": None, "cwd": None, **more}
    with pytest.raises(ValueError, match=why):
        plan_document("r", **given)  # type: ignore[arg-type]  # faulty on purpose


def test_unchecked_plan_needs_no_checkers() -> None:
    assert PlanDocument(request="r", unchecked=True).checkers == ()


def test_result_names_accepted_and_failed_tasks() -> None:
    tasks = [
        TaskView(id="a", title="A", status="completed", verified=True),
        TaskView(id="b", title="B", status="failed"),
        TaskView(id="c", title="C", status="blocked"),
    ]
    plan = PlanView(session="1a2b3c4d", state="ended", version=9, request="r", tasks=tasks)
    reason = Reason(code="blocked_on", text="tasks cannot start: c", beneath=None)
    view = ResultView(
        session_id="1a2b3c4d", kind="plan", status="failed", verdict="terminate", iterations=0,
        reason=reason,
    )  # fmt: skip
    result = PlanResult.of(view, plan)
    assert (result.status, result.accepted, result.failed) == ("failed", ["a"], ["b"])
    assert (list(result.tasks), result.reason) == (["a", "b", "c"], "tasks cannot start: c")


def test_cost_limit_names_agents_of_the_lead_the_tasks_and_the_checkers() -> None:
    agents = [
        AgentView(name=name, kind="command", command=name, default=name == "lead", knows_cost=False)
        for name in ("lead", "worker", "special", "judge")
    ]
    drafted = PlanDocument.model_validate(
        {"request": "r", "doer": {"agent": "worker"}, "checkers": ["agent(judge): look"]}
    )
    found = unknown_costs(agents_of(drafted), agents)
    named = [text.partition("'")[2].partition("'")[0] for text in found]
    assert named == ["lead", "worker", "judge"]
    given = PlanDocument.model_validate(
        {"request": "r", "doer": {"command": "true"}, "checkers": ["true"],
         "tasks": [{"id": "a", "title": "A", "agent": "special"}]}
    )  # fmt: skip
    found = unknown_costs(agents_of(given), agents)
    named = [text.partition("'")[2].partition("'")[0] for text in found]
    assert named == ["special"]


def test_cycle_is_found_behind_tasks_that_lead_into_it() -> None:
    needs: dict[str, tuple[str, ...]] = {"d": ("a",), "a": ("b",), "b": ("c",), "c": ("a",)}
    assert [*find_cycles(needs)] == [["a", "b", "c"]]
