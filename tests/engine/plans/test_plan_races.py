"""Plans whose children are resumed, dropped or reported about in an unlucky order."""

from __future__ import annotations

import pytest

from app.errors import InvalidDocument, PositionRefused
from app.plans import plans
from app.plans.edits import apply_fact
from leadhand.errors import NoPlan, PlanRefused
from leadhand.models.plans import TaskReport
from tests.engine.driving import Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World

PROPOSED = {"task": {"id": "more", "title": "One more"}}


def test_an_acceptance_counts_if_its_resume_was_never_reported(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(
        world, [{"id": "a"}, {"id": "b", "dependencies": ["a"]}, {"id": "c"}], task_retries=0
    )
    plan.begin()
    plan.fail("a")
    deliver, world.engine.transitions.deliver = world.engine.transitions.deliver, lambda _: None
    plan.resume_child("a")
    plan.finish("a")
    world.engine.transitions.deliver = deliver
    world.later(1_000)
    assert plan.seen("a").verified
    assert plan.at_work() == {"b", "c"}


def test_a_stale_end_of_a_child_that_was_resumed_changes_nothing(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    child = plan.child("a")
    deliver, world.engine.transitions.deliver = world.engine.transitions.deliver, lambda _: None
    plan.fail("a")
    seen = world.engine.store.fields(child)
    plan.resume_child("a")
    world.engine.transitions.deliver = deliver
    parent = {"session": plan.id, "address": "execute", "task": "a~1"}
    apply_fact(world.engine, child, seen, parent)
    assert plan.task("a").state == "running"
    world.later(1_000)
    plan.finish("a")
    assert plan.seen("a").verified


def test_a_failed_child_that_is_resumed_before_its_retry_takes_the_place_of_that(
    bench: Bench,
) -> None:
    world = World.of(bench)
    plan = PlanWorld(
        world, [{"id": "a"}, {"id": "b"}, {"id": "c", "priority": 0}], at_once=2, task_retries=1
    )
    plan.begin()
    assert plan.at_work() == {"a", "c"}
    plan.edit({"op": "change", "id": "b", "priority": 0})
    plan.fail("a")
    assert plan.at_work() == {"b", "c"}
    plan.engine.control.apply(plan.seen("a").runs[0].session, "resume")
    assert plan.task("a").run == 1
    plan.finish("c")
    assert plan.at_work() == {"a", "b"}
    assert plan.task("a").run == 1


def test_a_new_task_of_a_dropped_one_s_id_has_a_session_of_its_own(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    older = plan.child("a").id
    plan.fail("a")
    plan.edit({"op": "drop", "id": "a"})
    with pytest.raises(NoPlan, match="no such task"):
        plans.read_task(world.engine, older)
    plan.edit({"op": "add", "task": {"id": "a", "title": "Do a"}})
    assert plan.child("a").id != older
    assert plan.at_work() == {"a", "b"}
    plan.finish("a")
    plan.finish("b")
    assert plan.status == "completed"


def test_a_report_that_is_sent_twice_proposes_once(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    report = TaskReport.model_validate({"status": "in_progress", "proposals": [PROPOSED]})
    for _ in range(2):
        plans.report(world.engine, plan.child("a").id, report)
    assert [one.id for one in plan.view.proposals] == ["p1"]


def test_a_plan_whose_budget_is_spent_starts_no_further_task(bench: Bench) -> None:
    world = World.of(bench)
    tasks = [{"id": "a"}, {"id": "b"}]
    plan = PlanWorld(world, tasks, at_once=1, budget={"wall_s": 60.0})
    plan.begin()
    for _ in range(4):
        world.later(61_000)
    assert plan.status == "failed"
    assert plan.task("b").state == "waiting"
    assert len(world.engine.store.children(plan.ref)) == 1


def test_a_place_that_is_away_for_a_while_fails_no_task(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    submit = world.engine.submit.document

    def away(*_args: object, **_more: object) -> None:
        raise InvalidDocument("place", "there", "no worker is at this place")

    monkeypatch.setattr(world.engine.submit, "document", away)
    plan.begin()
    assert plan.task("a").state == "starting"
    monkeypatch.setattr(world.engine.submit, "document", submit)
    for _ in range(3):
        world.later(61_000)
    assert plan.at_work() == {"a"}


def test_a_draft_that_is_being_changed_takes_no_edit(bench: Bench) -> None:
    plan = PlanWorld(World.of(bench), [{"id": "a"}], refine=True)
    plan.draft("drafting~1[1]/decompose")
    plans.reject(plan.engine, plan.id, "more", by="ann")
    with pytest.raises(PlanRefused, match="is changing the draft"):
        plan.edit({"op": "change", "id": "a", "title": "lost"})


def test_a_plan_whose_tasks_have_begun_is_not_sent_back_to_its_draft(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], task_retries=0)
    plan.begin()
    plan.fail("a")
    assert plan.status == "failed"
    with pytest.raises(PositionRefused, match="have begun"):
        world.engine.control.apply(plan.id, "resume", after="decompose")
    world.engine.control.apply(plan.id, "resume")
    plan.park("execute~2")
    assert plan.at_work() == {"a"}
