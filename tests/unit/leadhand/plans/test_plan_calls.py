"""Calls of plans: what is sent, and how a repeated call knows that it was executed before."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from leadhand.contract.calls import Answer, Call, Script
from leadhand.contract.plans import Plans, shows
from leadhand.errors import PlanRefused, RequestInvalid, TaskUnknown
from leadhand.models.plans import AddTask, ChangeTask, PlanEdit, PlannedTask
from leadhand.models.problems import MEDIA_TYPE
from leadhand.models.views.plan import PlanView, ProposalView, TaskView

S = "1a2b3c4d"
#: Operations of no client return their scripts.
PLANS = Plans()


def call_of(script: Script[object]) -> Call:
    """The first call of an operation."""
    call = next(iter(script))
    assert isinstance(call, Call)
    return call


def is_done(script: Script[PlanView], plan: PlanView) -> bool:
    """Whether a repeated call that is refused takes the plan for its effect."""
    steps = iter(script)
    next(steps)
    problem = PlanRefused.of("it is too late").problem.model_dump_json()
    refused = httpx2.Response(409, headers={"Content-Type": MEDIA_TYPE}, content=problem)
    call = steps.send(Answer(refused, repeated=True))
    assert call == call_of(PLANS.plan(S))
    try:
        steps.send(Answer(httpx2.Response(200, content=plan.model_dump_json()), repeated=False))
    except StopIteration as end:
        return bool(end.value == plan)
    except PlanRefused:
        return False
    raise AssertionError("a third call")


def task(id_: str, status: str = "pending", **more: Any) -> TaskView:
    return TaskView.model_validate({"id": id_, "title": id_.upper(), "status": status, **more})


def plan(*tasks: TaskView, **more: Any) -> PlanView:
    fields = {"session": S, "state": "refining", "version": 3, "request": "r", **more}
    return PlanView.model_validate({**fields, "tasks": list(tasks)})


def sent(content: bytes | None) -> Any:
    return json.loads(content or b"null")


@pytest.mark.parametrize(
    "operations",
    [
        [
            {"op": "add", "task": {"id": "a", "title": "A"}},
            {"op": "change", "id": "b", "agent": None, "priority": 1},
        ],
        [
            AddTask(task=PlannedTask(id="a", title="A")),
            ChangeTask(id="b", agent=None, priority=1),
        ],
    ],
)
def test_edit_sends_the_fields_that_are_set(operations: Any) -> None:
    call = call_of(PLANS.edit_plan(S, operations, seen=plan()))
    assert call.headers == {"If-Match": '"plan-3"'}
    assert sent(call.content) == {
        "operations": [
            {"op": "add", "task": {"id": "a", "title": "A"}},
            {"op": "change", "id": "b", "agent": None, "priority": 1},
        ]
    }
    assert call_of(PLANS.edit_plan(S, operations, seen=7)).headers == {"If-Match": '"plan-7"'}
    assert call_of(PLANS.edit_plan(S, operations)).headers == {}


@pytest.mark.parametrize("operations", [[], [{"op": "remove"}], [{"op": "drop", "id": "A b"}]])
def test_invalid_edit_is_refused_before_it_is_sent(operations: Any) -> None:
    with pytest.raises(RequestInvalid):
        PLANS.edit_plan(S, operations)


A, B = task("a"), task("b", dependencies=["a"])


@pytest.mark.parametrize(
    ("operation", "before", "after"),
    [
        ({"op": "add", "task": {"id": "c", "title": "C"}}, [A, B], [A, B, task("c")]),
        ({"op": "add", "task": {"id": "a", "title": "New"}}, [A, B], [task("a", title="New")]),
        ({"op": "change", "id": "b", "priority": 0}, [A, B], [A, task("b", priority=0)]),
        ({"op": "change", "id": "b", "dependencies": []}, [A, B], [A, task("b")]),
        ({"op": "drop", "id": "b"}, [A, B], [A]),
        ({"op": "move", "id": "b"}, [A, B], [B, A]),
        ({"op": "move", "id": "a", "after": "b"}, [A, B], [B, A]),
        ({"op": "retry", "id": "a"}, [task("a", "failed")], [task("a", "in_progress")]),
    ],
)
def test_plan_shows_whether_an_operation_was_carried_out(
    operation: dict[str, Any], before: list[TaskView], after: list[TaskView]
) -> None:
    edit = PlanEdit.model_validate({"operations": [operation]})
    assert not shows(plan(*before), edit)
    assert shows(plan(*after), edit)


def test_approval_change_and_decision_are_seen_in_the_plan() -> None:
    proposal = ProposalView(id="p1", task=A, by="0000000a", at="", status="accepted")
    refining, executing = plan(), plan(state="executing", proposals=[proposal])
    assert not is_done(PLANS.approve_plan(S), refining)
    assert is_done(PLANS.approve_plan(S), executing)
    assert not is_done(PLANS.change_plan(S, "x"), refining)
    assert is_done(PLANS.change_plan(S, "x"), plan(state="planning"))
    assert is_done(PLANS.decide_proposal(S, "p1", accept=True), executing)
    assert not is_done(PLANS.decide_proposal(S, "p1", accept=False), executing)


def test_report_sends_what_is_given() -> None:
    call = call_of(PLANS.report(S, "done", proposals=[{"task": {"id": "x", "title": "X"}}]))
    assert call.path == f"/v1/sessions/{S}/reports"
    assert sent(call.content) == {
        "status": "completed",
        "proposals": [{"task": {"id": "x", "title": "X"}}],
    }
    with pytest.raises(RequestInvalid, match="pr_url"):
        PLANS.report(S, "done", pr_url="javascript:x")


def test_names_are_escaped_in_paths_and_empty_ones_refused() -> None:
    assert call_of(PLANS.plan_task(S, "a/b")).path == f"/v1/sessions/{S}/plan/tasks/a%2Fb"
    assert call_of(PLANS.decide_proposal(S, "p/1", accept=True)).path.endswith("/proposals/p%2F1")
    with pytest.raises(TaskUnknown):
        PLANS.plan_task(S, "")
    with pytest.raises(PlanRefused):
        PLANS.decide_proposal(S, "", accept=True)
