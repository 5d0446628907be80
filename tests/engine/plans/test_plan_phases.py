"""The phases of a plan's sessions: of the team lead, of the tasks' sessions and of those below."""

from __future__ import annotations

import pytest

from app.core.outcomes import Outcome
from app.plans import plans
from app.security.signatures import Caller
from app.sessions.tree import read_tree
from leadhand.errors import ControlRefused
from leadhand.models.views.session import RoleView
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.plans.test_plan_replans import Replanning
from tests.engine.world import World


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def phase(plan: PlanWorld, session: str | None = None) -> RoleView:
    found = plan.engine.queries.session(session or plan.id).phase
    assert found is not None
    return found


def words(plan: PlanWorld, session: str | None = None) -> tuple[str, str, str]:
    found = phase(plan, session)
    return found.role, found.phase, found.may_end


def test_a_lead_dispatches_waits_and_is_done(world: World) -> None:
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b", "dependencies": ["a"]}], refine=True)
    assert words(plan) == ("tl", "planning", "clean")
    plan.draft("drafting~1[1]/decompose")
    assert words(plan) == ("tl", "planning", "clean")
    plans.approve(plan.engine, plan.id, by="ann")
    world.later(1_000)
    plan.park("execute")
    assert words(plan) == ("tl", "waiting", "nudge")
    assert phase(plan).children == ["a"]
    plan.finish("a")
    assert phase(plan).children == ["b"]
    plan.finish("b")
    assert words(plan) == ("tl", "done", "clean")


def test_one_failed_child_does_not_fail_its_lead(world: World) -> None:
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    plan.fail("a")
    assert words(plan, plan.child("a").id) == ("dev", "failed", "clean")
    assert words(plan) == ("tl", "waiting", "nudge")
    plan.finish("b")
    assert words(plan) == ("tl", "done", "clean")


def test_a_lead_with_tasks_that_have_not_started_dispatches(world: World) -> None:
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b", "dependencies": ["a"]}], task_retries=0)
    plan.begin()
    plan.report("a", "in_progress", proposals=[{"task": {"id": "more", "title": "More"}}])
    plan.fail("a")
    assert words(plan) == ("tl", "dispatching", "nudge")
    plans.decide(plan.engine, plan.id, "p1", accept=False, by="ann")
    assert words(plan) == ("tl", "failed", "clean")


def test_a_dev_files_its_pull_request_and_its_checkers_review_it(world: World) -> None:
    plan = PlanWorld(world, [{"id": "a", "max_iterations": 3}])
    plan.begin()
    child = plan.child("a")
    assert words(plan, child.id) == ("dev", "spawned", "clean")
    do = "loop~1[1]/do"
    grant = world.grant(child, do)
    assert words(plan, child.id) == ("dev", "working", "nudge")
    plan.report("a", "completed", pr_url="https://example.org/pr/1")
    assert words(plan, child.id) == ("dev", "pr_filed", "clean")
    world.settle(child, grant)
    assert (phase(plan, child.id).phase, phase(plan, child.id).round) == ("under_review", 1)
    answer = world.settle(child, world.grant(child, "loop~1[1]/check.ok"))
    judge = world.judge(child, answer, "loop~1[1]")
    world.settle(child, judge, Outcome(word="succeeded", verdict="retry"))
    assert words(plan, child.id) == ("dev", "changes_requested", "block")
    world.settle(child, world.grant(child, "loop~1[2]/do"))
    assert (phase(plan, child.id).phase, phase(plan, child.id).round) == ("under_review", 2)
    answer = world.settle(child, world.grant(child, "loop~1[2]/check.ok"))
    judge = world.judge(child, answer, "loop~1[2]")
    world.settle(child, judge, Outcome(word="succeeded", verdict="accept"))
    assert words(plan, child.id) == ("dev", "done", "clean")


def refused_dev(world: World) -> tuple[PlanWorld, Caller]:
    """A plan whose dev has filed a pull request, of which changes are requested."""
    plan = PlanWorld(world, [{"id": "a", "max_iterations": 3}])
    plan.begin()
    child = plan.child("a")
    grant = world.grant(child, "loop~1[1]/do")
    plan.report("a", "in_progress", pr_url="https://example.org/pr/1")
    world.settle(child, grant)
    answer = world.settle(child, world.grant(child, "loop~1[1]/check.ok"))
    judge = world.judge(child, answer, "loop~1[1]")
    world.settle(child, judge, Outcome(word="succeeded", verdict="retry"))
    do = world.grant(child, "loop~1[2]/do")
    assert words(plan, child.id) == ("dev", "changes_requested", "block")
    return plan, Caller(child.id, do.address, do.fence, ("exit",))


def test_a_body_cannot_exit_while_changes_are_requested(world: World) -> None:
    plan, body = refused_dev(world)
    with pytest.raises(ControlRefused, match="changes of its work are requested; make them, or"):
        plan.engine.control.apply(body.session, "exit", reason="enough", by=body)
    assert plan.engine.queries.session(body.session).status == "active"
    plan.report("a", "blocked", notes="no key")
    assert words(plan, body.session) == ("dev", "changes_requested", "clean")
    plan.engine.control.apply(body.session, "exit", reason="no key", by=body)
    world.later(61_000)
    assert plan.task("a").fact == "exited"


def test_a_person_ends_a_session_in_any_phase(world: World) -> None:
    plan, body = refused_dev(world)
    view = plan.engine.control.apply(body.session, "exit", reason="enough")
    assert view.status in ("exiting", "exited")


def test_a_dev_that_reported_may_end(world: World) -> None:
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    world.grant(plan.child("a"), "loop~1[1]/do")
    assert words(plan, plan.child("a").id) == ("dev", "working", "nudge")
    plan.report("a", "completed")
    assert words(plan, plan.child("a").id) == ("dev", "working", "clean")


def test_other_children_are_workers_and_a_session_of_its_own_has_no_phase(world: World) -> None:
    plan = Replanning(world)
    plan.fail("a")
    asked = plan.asked("a")
    assert words(plan, asked.id) == ("worker", "spawned", "clean")
    world.grant(asked, "replan")
    assert words(plan, asked.id) == ("worker", "working", "clean")
    assert plan.engine.queries.session(world.session().id).phase is None


def test_the_tree_has_the_phase_of_each_session(world: World) -> None:
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}])
    plan.begin()
    plan.finish("a")
    nodes = {node.id: node.phase for node in read_tree(plan.engine, plan.id).items}
    found = {id_: (one.role, one.phase) for id_, one in nodes.items() if one is not None}
    assert found == {
        plan.id: ("tl", "waiting"),
        plan.child("a").id: ("dev", "done"),
        plan.child("b").id: ("dev", "spawned"),
    }


def test_tasks_have_the_baseline_and_the_quarantine_of_their_plan(world: World) -> None:
    held = {"test": "test_a.py::test_b", "owner": "ann", "until": "2026-12-31"}
    plan = PlanWorld(world, [{"id": "a"}], baseline=True, quarantine=[held])
    plan.begin()
    child = plan.child("a")
    before = Outcome(word="succeeded", text="red before the work", value={"word": "red"})
    world.settle(child, world.grant(child, "base.ok"), before)
    world.settle(child, world.grant(child, "loop~1[1]/do"))
    grant = world.grant(child, "loop~1[1]/check.ok")
    inputs = plan.engine.attempts.work(child, grant).inputs
    assert inputs["quarantine"] == [held]
    assert isinstance(inputs["base"], dict)
    assert inputs["base"]["value"] == {"word": "red"}
