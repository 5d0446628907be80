"""Calls of plans: what is sent, and how a repeated call knows that it was executed before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadhand.client import plans
from leadhand.errors import PlanRefused, RequestInvalid, TaskUnknown
from leadhand.models.plans import AddTask, ChangeTask, PlanEdit, PlannedTask
from leadhand.models.views import PlanView, ProposalView, TaskView

S = "1a2b3c4d"


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
    change = plans.editing(S, operations, plan())
    assert change.call.headers == {"If-Match": '"plan-3"'}
    assert sent(change.call.content) == {
        "operations": [
            {"op": "add", "task": {"id": "a", "title": "A"}},
            {"op": "change", "id": "b", "agent": None, "priority": 1},
        ]
    }
    assert plans.editing(S, operations, 7).call.headers == {"If-Match": '"plan-7"'}
    assert plans.editing(S, operations, None).call.headers == {}


@pytest.mark.parametrize("operations", [[], [{"op": "remove"}], [{"op": "drop", "id": "A b"}]])
def test_invalid_edit_is_refused_before_it_is_sent(operations: Any) -> None:
    with pytest.raises(RequestInvalid):
        plans.editing(S, operations, None)


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
    assert not plans.shows(plan(*before), edit)
    assert plans.shows(plan(*after), edit)


def test_approval_change_and_decision_are_seen_in_the_plan() -> None:
    proposal = ProposalView(id="p1", task=A, by="0000000a", at="", status="accepted")
    refining, executing = plan(), plan(state="executing", proposals=[proposal])
    assert not plans.approval(S).is_done(refining)
    assert plans.approval(S).is_done(executing)
    assert not plans.change(S, "x").is_done(refining)
    assert plans.change(S, "x").is_done(plan(state="planning"))
    assert plans.decision(S, "p1", accept=True).is_done(executing)
    assert not plans.decision(S, "p1", accept=False).is_done(executing)


def test_report_sends_what_is_given() -> None:
    call = plans.report(S, "done", None, None, [{"task": {"id": "x", "title": "X"}}])
    assert call.path == f"/v1/sessions/{S}/reports"
    assert sent(call.content) == {
        "status": "completed",
        "proposals": [{"task": {"id": "x", "title": "X"}}],
    }
    with pytest.raises(RequestInvalid, match="pr_url"):
        plans.report(S, "done", "javascript:x", None, [])


def test_names_are_escaped_in_paths_and_empty_ones_refused() -> None:
    assert plans.task(S, "a/b").path == f"/v1/sessions/{S}/plan/tasks/a%2Fb"
    assert plans.decision(S, "p/1", accept=True).call.path.endswith("/proposals/p%2F1")
    with pytest.raises(TaskUnknown):
        plans.task(S, "")
    with pytest.raises(PlanRefused):
        plans.decision(S, "", accept=True)
