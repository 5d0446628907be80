"""The progress of a plan: tasks start in the order of their dependencies, and their ends count."""

from __future__ import annotations

import pytest

from app.core.outcomes import Outcome, Usage
from app.sessions.questions import list_questions
from app.sessions.tree import read_tree
from leadhand.errors import StoreAway
from tests.engine.driving import Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World

DIAMOND = (
    {"id": "a"},
    {"id": "b", "dependencies": ["a"]},
    {"id": "c", "dependencies": ["a"]},
    {"id": "d", "dependencies": ["b", "c"]},
)


def test_a_task_starts_when_all_that_it_needs_is_accepted(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, DIAMOND)
    plan.begin()
    assert plan.at_work() == {"a"}
    plan.finish("a")
    assert plan.at_work() == {"b", "c"}
    plan.finish("c")
    assert plan.at_work() == {"b"}
    plan.finish("b")
    assert plan.at_work() == {"d"}
    plan.finish("d")
    assert plan.status == "completed"
    assert plan.view.state == "ended"
    assert plan.view.progress == {"completed": 4, "verified": 4}


def test_no_more_tasks_work_at_once_than_the_plan_allows(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": f"t{n}"} for n in range(5)], at_once=2)
    plan.begin()
    assert plan.at_work() == {"t0", "t1"}
    plan.finish("t1")
    assert plan.at_work() == {"t0", "t2"}


def test_a_task_of_higher_priority_starts_first(bench: Bench) -> None:
    world = World.of(bench)
    tasks: list[dict[str, object]] = [
        {"id": "low", "priority": 9},
        {"id": "normal"},
        {"id": "high", "priority": 0},
    ]
    plan = PlanWorld(world, tasks, at_once=1)
    plan.begin()
    assert plan.at_work() == {"high"}
    plan.finish("high")
    assert plan.at_work() == {"normal"}


def test_a_failed_task_runs_again_and_is_told_why_it_failed(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], task_retries=1)
    plan.begin()
    first = plan.child("a")
    plan.fail("a")
    second = plan.child("a")
    assert second != first
    assert plan.task("a").run == 2
    text = world.engine.attempts.work(second, world.grant(second, "loop~1[1]/do")).inputs["task"]
    assert "# The run before this one failed" in str(text)
    assert [one.ended for one in plan.seen("a").runs] == ["failed", None]


def test_a_task_that_failed_for_good_leaves_the_rest_to_go_on(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    plan.fail("a")
    assert plan.status == "waiting"
    plan.finish("b")
    assert plan.status == "completed"
    (warning,) = world.engine.queries.session(plan.id).warnings
    assert warning.startswith("task a failed")
    assert plan.statuses() == {"a": "failed", "b": "completed"}


def test_a_plan_whose_open_tasks_can_never_start_names_them(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, DIAMOND, task_retries=0)
    plan.begin()
    plan.finish("a")
    plan.fail("b")
    plan.finish("c")
    view = world.engine.queries.session(plan.id)
    assert view.status == "failed"
    assert view.reason is not None
    codes = [view.reason.code]
    link = view.reason
    while link.beneath is not None:
        link = link.beneath
        codes.append(link.code)
    assert "blocked_on" in codes
    assert plan.statuses() == {"a": "completed", "b": "failed", "c": "completed", "d": "blocked"}


def test_a_plan_may_end_at_its_first_failed_task(bench: Bench) -> None:
    world = World.of(bench)
    tasks = [{"id": "a"}, {"id": "b"}, {"id": "c"}]
    plan = PlanWorld(world, tasks, task_retries=0, on_task_failure="stop", at_once=2)
    plan.begin()
    plan.fail("a")
    assert plan.at_work() == {"b"}
    plan.finish("b")
    assert plan.status == "failed"
    assert plan.statuses()["c"] == "pending"


def test_a_resumed_plan_runs_its_failed_tasks_again_and_keeps_the_accepted_ones(
    bench: Bench,
) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, DIAMOND, task_retries=0)
    plan.begin()
    plan.finish("a")
    plan.fail("b")
    plan.finish("c")
    world.engine.control.apply(plan.id, "resume")
    plan.park("execute~2")
    assert plan.at_work() == {"b"}
    plan.finish("b")
    plan.finish("d")
    assert plan.status == "completed"
    assert plan.task("a").run == 1


def test_a_failed_child_that_is_resumed_puts_its_task_back_to_work(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(
        world, [{"id": "a"}, {"id": "b", "dependencies": ["a"]}, {"id": "c"}], task_retries=0
    )
    plan.begin()
    plan.fail("a")
    assert plan.statuses()["b"] == "blocked"
    plan.resume_child("a")
    assert plan.statuses() == {"a": "in_progress", "b": "pending", "c": "in_progress"}
    plan.finish("a")
    assert plan.at_work() == {"b", "c"}


def test_a_child_that_exits_fails_its_task_with_that_reason_and_is_not_run_again(
    bench: Bench,
) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=3)
    plan.begin()
    plan.exit("a")
    task = plan.seen("a")
    assert (task.status, task.run) == ("failed", 1)
    assert task.reason is not None
    assert task.reason.code == "exit"
    assert plan.status == "waiting"


def test_a_child_that_a_user_stopped_counts_as_stopped_and_the_plan_goes_on(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}])
    plan.begin()
    world.engine.control.apply(plan.child("a").id, "stop", reason="not now")
    world.later(2_000)
    assert plan.statuses()["a"] == "failed"
    plan.finish("b")
    assert plan.status == "completed"


def test_a_stopped_plan_stops_its_children_and_takes_them_along(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b", "dependencies": ["a"]}])
    plan.begin()
    world.engine.control.apply(plan.id, "stop")
    world.later(1_000)
    assert plan.status == "stopped"
    assert plan.task("a").state == "running"
    world.engine.control.apply(plan.id, "resume")
    world.later(1_000)
    plan.finish("a")
    plan.finish("b")
    assert plan.status == "completed"


def test_a_task_that_a_stop_kept_from_starting_starts_with_the_resume(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b", "dependencies": ["a"]}])
    plan.begin()
    deliver = world.engine.transitions.deliver

    def stop_first(errand: str) -> None:
        if errand.startswith("spawn|"):
            world.engine.control.apply(plan.id, "stop")
        deliver(errand)

    world.engine.transitions.deliver = stop_first
    plan.finish("a")
    world.engine.transitions.deliver = deliver
    world.later(1_000)
    assert plan.status == "stopped"
    assert len(world.engine.store.children(plan.ref)) == 1
    assert plan.task("b").state == "starting"
    world.engine.control.apply(plan.id, "resume")
    assert plan.at_work() == {"b"}


def test_the_end_of_an_older_run_changes_nothing(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], task_retries=1)
    plan.begin()
    older = plan.child("a")
    plan.fail("a")
    world.engine.reports.deliver(older)
    assert plan.at_work() == {"a"}
    assert plan.task("a").tries == 1


def test_the_next_run_begins_without_the_word_of_the_last(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], task_retries=1)
    plan.begin()
    plan.report("a", "completed")
    plan.fail("a")
    assert plan.statuses() == {"a": "in_progress"}


def test_an_aborted_plan_aborts_its_children(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    child = plan.child("a")
    world.engine.control.apply(plan.id, "abort")
    world.later(1_000)
    assert plan.status == "aborted"
    assert world.engine.queries.session(child.id).status == "aborted"
    assert plan.view.state == "ended"


def test_a_spawn_that_was_lost_is_repeated_by_the_sweep(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    deliver, world.engine.transitions.deliver = world.engine.transitions.deliver, lambda _: None
    plan.begin()
    assert plan.task("a").state == "starting"
    world.engine.transitions.deliver = deliver
    world.later(1_000)
    assert plan.at_work() == {"a"}


def test_a_spawn_that_crashed_after_the_child_was_created_finds_the_same_child(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    run = world.engine.transitions.run

    def crash(verb, *args, **more):
        if verb == "plan_started":
            raise StoreAway("cut")
        return run(verb, *args, **more)

    monkeypatch.setattr(world.engine.transitions, "run", crash)
    plan.begin()
    (child,) = world.engine.store.children(plan.ref)
    monkeypatch.setattr(world.engine.transitions, "run", run)
    world.later(1_000)
    assert plan.child("a").id == child
    assert world.engine.store.children(plan.ref) == {child}


def test_an_end_whose_report_was_lost_is_seen_by_the_look_at_the_plan(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    deliver, world.engine.transitions.deliver = world.engine.transitions.deliver, lambda _: None
    plan.finish("a")
    world.engine.store.remove_errand(f"deliver|{plan.child('a').member}")
    world.engine.transitions.deliver = deliver
    assert plan.status == "waiting"
    world.later(61_000)
    assert plan.status == "completed"


def test_a_child_that_was_deleted_fails_its_task(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    world.engine.deletion.delete(plan.child("a").id, force=True)
    world.later(2_000)
    assert plan.statuses()["a"] == "failed"
    plan.finish("b")
    assert plan.status == "completed"


def test_a_task_whose_session_cannot_be_created_fails_with_the_reason(bench: Bench) -> None:
    world = World.of(bench)
    world.worker("here", "/f")
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b", "dependencies": ["a"]}], task_retries=2)
    plan.begin()
    plan.edit({"op": "change", "id": "b", "agent": "nobody"})
    plan.finish("a")
    task = plan.seen("b")
    assert (task.status, task.run) == ("failed", 1)
    assert task.reason is not None
    assert "nobody" in task.reason.text
    assert plan.status == "completed"


def test_a_childs_cost_counts_in_the_plan(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    child = plan.child("a")
    used = Outcome(word="succeeded", usage=Usage(cost_usd=0.25))
    world.settle(child, world.grant(child, "loop~1[1]/do"), used)
    answer = world.settle(child, world.grant(child, "loop~1[1]/check.ok"))
    world.settle(child, world.judge(child, answer), Outcome(word="succeeded", verdict="accept"))
    assert world.engine.queries.session(plan.id).counters.cost_usd == 0.25


def test_each_change_of_the_plan_is_one_version_with_one_event(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, DIAMOND)
    plan.begin()
    plan.finish("a")
    plan.fail("b")
    versions = [fields["version"] for _, fields in world.told(plan.ref, "plan.changed")]  # type: ignore[call-overload,index]
    assert versions == list(range(1, plan.view.version + 1))


def test_a_plan_is_named_by_its_request_in_every_list(bench: Bench) -> None:
    world, request = World.of(bench), "# Add a login page\nWith tests."
    plan = PlanWorld(world, [{"id": "a"}], request=request, refine=True)
    plan.draft("drafting~1[1]/decompose")
    queries = world.engine.queries
    assert queries.session(plan.id).title == "Add a login page"
    assert [one.title for one in read_tree(world.engine, plan.id).items] == ["Add a login page"]
    [question] = list_questions(world.engine, limit=9, cursor=None).items
    assert question.name == "Add a login page"
