"""After a task has failed for good the team lead is asked for another way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from app.core.outcomes import Outcome
from app.plans import plans
from app.sessions.inbox import list_messages
from leadhand.errors import PlanRefused
from leadhand.models.plans import PlanDocument
from leadhand.models.verdicts import Reason, ReasonCode
from tests.engine.driving import Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.test_fsck import audit
from tests.engine.world import World

TASKS: list[dict[str, object]] = [{"id": "a"}, {"id": "b", "dependencies": ["a"]}, {"id": "c"}]
FAILED = Outcome(word="failed", text="no model", retryable=False)
AGAIN: list[JsonValue] = [
    {"op": "add", "task": {"id": "first", "title": "The part before it"}},
    {"op": "change", "id": "a", "description": "in small steps", "dependencies": ["first"]},
    {"op": "retry", "id": "a"},
]


class Replanning(PlanWorld):
    """A plan whose team lead is asked about failed tasks; the test answers for it."""

    def __init__(self, world: World, **more: Any) -> None:
        fields: dict[str, Any] = {"task_retries": 0, "proposals": "accept", **more}
        super().__init__(world, TASKS, on_task_failure="replan", **fields)
        self.begin()

    def state_of(self, task: str) -> str:
        replan = self.seen(task).replan
        assert replan is not None
        return replan.state

    def audit(self) -> None:
        assert audit(self.engine.audit.run).items == []


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


@pytest.fixture
def plan(world: World) -> Replanning:
    return Replanning(world)


def test_the_answer_of_the_team_lead_is_an_edit_of_the_plan(bench: Bench) -> None:
    plan = Replanning(World.of(bench))
    plan.finish("c")
    plan.fail("a")
    assert (plan.status, plan.state_of("a")) == ("waiting", "asked")
    plan.audit()
    asked = plan.asked("a")
    plan.answer("a", *AGAIN, why="it was too much at once")
    assert plan.state_of("a") == "proposed"
    assert plan.at_work() == {"first"}
    version = plan.record.version
    plan.engine.reports.deliver(asked)  # a message that arrives twice
    assert (plan.record.version, len(plan.record.proposals)) == (version, 1)
    (proposal,) = plan.view.proposals
    assert (proposal.status, proposal.about, proposal.by) == ("accepted", "a", asked.id)
    assert [one["op"] for one in proposal.operations] == ["add", "change", "retry"]
    plan.finish("first")
    assert plan.task("a").task.description == "in small steps"
    plan.finish("a")
    plan.finish("b")
    assert plan.status == "completed"
    plan.audit()
    kinds = [one.kind for one in list_messages(plan.engine, plan.id, limit=50).items]
    assert kinds == ["accepted", "failed", "proposal", "accepted", "accepted", "accepted"]


def test_the_team_lead_is_given_the_plan_and_the_reason(plan: Replanning) -> None:
    plan.finish("c")
    child, world = plan.child("a"), plan.world
    (do,) = world.engine.store.members(child, "live")
    reason = Reason(code=ReasonCode.FAILED_STEP, text="no compiler here")
    world.settle(child, world.grant(child, do), Outcome(word="failed", reason=reason))
    ref = plan.asked("a")
    inputs: Any = plan.engine.attempts.work(ref, world.grant(ref, "replan")).inputs
    assert "no compiler here" in json.loads(inputs["failed"])["reason"]
    statuses = {one["id"]: one["status"] for one in inputs["current"]}
    assert statuses == {"a": "failed", "b": "blocked", "c": "completed"}
    assert inputs["checkers"] == ["ok"]


def test_a_person_decides_about_the_edit_where_the_plan_asks_one(world: World) -> None:
    plan = Replanning(world, proposals="ask")
    plan.finish("c")
    plan.fail("a")
    plan.answer("a", *AGAIN)
    assert (plan.status, plan.at_work()) == ("waiting", set())
    plans.decide(plan.engine, plan.id, "p1", accept=True, by="ann")
    assert plan.at_work() == {"first"}
    plan.audit()


def test_a_refused_edit_lets_the_plan_end(world: World) -> None:
    plan = Replanning(world, proposals="ask")
    plan.finish("c")
    plan.fail("a")
    plan.answer("a", {"op": "retry", "id": "a"})
    plans.decide(plan.engine, plan.id, "p1", accept=False, by="ann")
    assert plan.status == "failed"
    assert plan.statuses() == {"a": "failed", "b": "blocked", "c": "completed"}


def test_an_edit_that_does_not_fit_any_more_is_refused_to_the_person(world: World) -> None:
    plan = Replanning(world, proposals="ask")
    plan.fail("a")
    plan.answer("a", {"op": "drop", "id": "b"}, {"op": "change", "id": "c", "title": "C"})
    with pytest.raises(PlanRefused, match="has started"):
        plans.decide(plan.engine, plan.id, "p1", accept=True, by="ann")
    assert set(plan.statuses()) == {"a", "b", "c"}
    plans.decide(plan.engine, plan.id, "p1", accept=False, by="ann")
    plan.audit()


def test_an_edit_that_the_plan_does_not_allow_is_recorded_and_changes_nothing(
    bench: Bench,
) -> None:
    plan = Replanning(World.of(bench))
    plan.fail("a")
    plan.answer("a", {"op": "drop", "id": "b"}, {"op": "drop", "id": "c"}, why="less")
    assert set(plan.statuses()) == {"a", "b", "c"}
    (proposal,) = plan.view.proposals
    assert proposal.status == "refused"
    assert "task c: it has started" in proposal.note
    plan.finish("c")
    assert plan.status == "failed"
    plan.audit()


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ([], "it sees no other way"),
        ([{"op": "explode", "id": "a"}], "its answer is no edit of the plan"),
        ([{"op": "change", "id": "a", "checkers": ["none"]}], "its answer is no edit of the plan"),
    ],
)
def test_an_answer_without_an_edit_is_recorded_with_its_reason(
    plan: Replanning, operations: list[JsonValue], why: str
) -> None:
    plan.finish("c")
    plan.fail("a")
    plan.answer("a", *operations)
    assert plan.state_of("a") == "none"
    replan = plan.seen("a").replan
    assert replan is not None
    assert why in replan.why
    assert plan.status == "failed"
    last = list_messages(plan.engine, plan.id, limit=50).items[-1]
    assert (last.kind, last.escalates) == ("replan", True)
    plan.audit()


def test_a_team_lead_that_fails_is_recorded_and_may_be_resumed(plan: Replanning) -> None:
    plan.fail("a")
    ref = plan.asked("a")
    plan.world.settle(ref, plan.world.grant(ref, "replan"), FAILED)
    assert plan.state_of("a") == "none"
    plan.engine.control.apply(ref.id, "resume")
    (live,) = plan.engine.store.members(ref, "live")
    value: JsonValue = {"operations": [{"op": "retry", "id": "a"}]}
    plan.world.settle(ref, plan.world.grant(ref, live), Outcome(word="succeeded", value=value))
    assert plan.at_work() == {"a", "c"}
    plan.audit()


def test_a_run_that_fails_again_after_its_resume_is_asked_about_anew(bench: Bench) -> None:
    plan = Replanning(World.of(bench))
    plan.fail("a")
    first = plan.asked("a")
    plan.answer("a", why="no idea")
    plan.resume_child("a")
    plan.fail("a")
    second = plan.asked("a")
    assert (plan.state_of("a"), second.id != first.id, plan.task("a").run) == ("asked", True, 1)
    plan.engine.reports.deliver(first)  # the old answer arrives again
    assert plan.state_of("a") == "asked"
    plan.answer("a", {"op": "retry", "id": "a"})
    assert plan.state_of("a") == "proposed"
    assert plan.at_work() == {"a", "c"}
    plan.audit()


def test_the_team_lead_is_asked_so_often_and_no_more(bench: Bench) -> None:
    plan = Replanning(World.of(bench), max_replans=2)
    plan.finish("c")
    for _ in range(2):
        plan.fail("a")
        plan.answer("a", {"op": "retry", "id": "a"})
    plan.fail("a")
    assert plan.status == "failed"
    assert plan.task("a").run == 3
    assert "2 is the most of this plan" in plan.seen("a").history[-1].note
    plan.audit()


def test_a_plan_ends_without_a_proposal_once_the_deadline_has_passed(bench: Bench) -> None:
    plan = Replanning(World.of(bench), replan_timeout_s=600.0)
    plan.finish("c")
    transitions = plan.engine.transitions
    deliver, transitions.deliver = transitions.deliver, lambda _: None
    plan.fail("a")
    transitions.deliver = deliver
    for _ in range(14):
        plan.world.later(61_000)
    replan = plan.seen("a").replan
    assert replan is not None
    assert (replan.state, replan.why) == ("none", "no answer before its deadline")
    assert plan.status == "failed"
    plan.audit()


def test_a_stop_takes_the_question_along_and_a_resume_goes_on(plan: Replanning) -> None:
    plan.finish("c")
    plan.fail("a")
    plan.engine.control.apply(plan.id, "stop")
    plan.world.later(61_000)
    assert plan.engine.queries.session(plan.asked("a").id).status == "stopped"
    assert plan.state_of("a") == "asked"
    plan.engine.control.apply(plan.id, "resume")
    plan.world.later(61_000)
    plan.answer("a", {"op": "retry", "id": "a"})
    assert plan.at_work() == {"a"}
    plan.audit()


def test_a_task_that_is_dropped_is_not_asked_about_any_more(bench: Bench) -> None:
    plan = Replanning(World.of(bench))
    plan.fail("a")
    asked = plan.asked("a")
    plan.edit({"op": "change", "id": "b", "dependencies": []}, {"op": "drop", "id": "a"})
    plan.world.settle(asked, plan.world.grant(asked, "replan"), FAILED)
    plan.finish("b")
    plan.finish("c")
    assert plan.status == "completed"
    plan.audit()


def test_a_resumed_plan_asks_again(plan: Replanning) -> None:
    plan.finish("c")
    plan.fail("a")
    plan.answer("a")
    plan.engine.control.apply(plan.id, "resume")
    plan.world.later(1_000)
    (execute,) = plan.engine.store.members(plan.ref, "live")
    plan.park(execute)
    plan.world.later(1_000)
    plan.fail("a")
    assert plan.state_of("a") == "asked"
    plan.audit()


def test_replanning_without_proposals_is_refused_by_field() -> None:
    with pytest.raises(ValidationError, match="give 'ask' or 'accept'"):
        PlanDocument.model_validate(
            {"request": "x", "unchecked": True, "on_task_failure": "replan", "proposals": "refuse"}
        )
