"""Reports of child sessions: their word, which their end confirms or contests; and proposals."""

from __future__ import annotations

import json

import pytest

from app.plans import plans
from app.sessions.inbox import list_messages
from leadhand.errors import IdempotencyConflict, NoPlan, PlanRefused, ReportLate
from leadhand.models.plans import TaskReport
from tests.engine.driving import Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World


def test_a_report_is_the_childs_word_until_its_end_confirms_it(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b", "dependencies": ["a"]}])
    plan.begin()
    plan.report("a", "done", pr_url="https://example.org/pr/1", notes="all of it")
    task = plan.seen("a")
    assert (task.status, task.verified) == ("completed", False)
    assert (task.pr_url, task.notes) == ("https://example.org/pr/1", "all of it")
    assert plan.at_work() == {"a"}
    plan.finish("a")
    assert plan.seen("a").verified
    assert plan.at_work() == {"b"}


def test_a_word_that_its_end_contradicts_is_contested(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    plan.report("a", "completed")
    plan.fail("a")
    task = plan.seen("a")
    assert (task.status, task.verified) == ("failed", False)
    assert task.reason is not None
    assert task.reason.code == "contested"
    assert task.reason.beneath is not None
    plan.finish("b")
    spawned = world.engine.queries.result(plan.id).spawned
    assert spawned is not None
    assert [(one.id, one.session) for one in spawned.sessions] == [
        ("a", plan.child("a").id), ("b", plan.child("b").id),
    ]  # fmt: skip
    assert [(one.id, bool(one.reason)) for one in spawned.failed] == [("a", True)]
    assert spawned.worktrees == []


def test_an_aborted_plan_lists_what_it_has_started(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}, {"id": "c"}], task_retries=0, at_once=2)
    plan.begin()
    plan.fail("a")
    plan.engine.control.apply(plan.id, "abort")
    spawned = world.engine.queries.result(plan.id).spawned
    assert spawned is not None
    started = [("a", plan.child("a").id), ("b", plan.child("b").id), ("c", plan.child("c").id)]
    assert [(one.id, one.session) for one in spawned.sessions] == started
    assert [one.id for one in spawned.failed] == ["a", "b", "c"]


def test_a_plan_that_is_aborted_before_its_tasks_has_started_nothing(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.engine.control.apply(plan.id, "abort")
    spawned = world.engine.queries.result(plan.id).spawned
    assert spawned is not None
    assert (spawned.sessions, spawned.worktrees, spawned.failed) == ([], [], [])


def test_a_child_that_reported_blocked_and_exits_leaves_its_task_blocked(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}])
    plan.begin()
    plan.report("a", "blocked", notes="needs a key")
    plan.exit("a")
    assert plan.statuses()["a"] == "blocked"


def test_a_report_that_is_repeated_is_no_new_version(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    report = TaskReport(status="in_progress", notes="half")
    first = plans.report(world.engine, plan.child("a").id, report)
    again = plans.report(world.engine, plan.child("a").id, report)
    assert (first.repeated, again.repeated) == (False, True)
    assert first.version == again.version == plan.view.version


def test_a_report_that_arrives_twice_counts_once_whatever_came_between(bench: Bench) -> None:
    plan = PlanWorld(World.of(bench), [{"id": "a"}])
    plan.begin()
    child, half = plan.child("a").id, TaskReport(status="in_progress", notes="half")
    plans.report(plan.engine, child, half, idempotency_key="1")
    plans.report(
        plan.engine, child, TaskReport(status="blocked", notes="needs a key"), idempotency_key="2"
    )
    before = plan.engine.store.plan(plan.ref)

    late = plans.report(plan.engine, child, half, idempotency_key="1")
    assert late.repeated
    assert plan.engine.store.plan(plan.ref) == before
    with pytest.raises(IdempotencyConflict, match="'1' was used for another body"):
        plans.report(plan.engine, child, TaskReport(status="completed"), idempotency_key="1")
    assert not plans.report(plan.engine, child, half, idempotency_key="3").repeated


def test_a_report_that_arrives_twice_after_the_end_is_answered_as_before(bench: Bench) -> None:
    plan = PlanWorld(World.of(bench), [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    child, report = plan.child("a").id, TaskReport(status="completed")
    plans.report(plan.engine, child, report, idempotency_key="1")
    plan.fail("a")
    assert plans.report(plan.engine, child, report, idempotency_key="1").repeated


def test_the_keys_of_a_task_s_reports_are_bounded(bench: Bench) -> None:
    plan = PlanWorld(World.of(bench), [{"id": "a"}])
    plan.begin()
    for number in range(60):
        report = TaskReport(status="in_progress", notes=str(number))
        plans.report(plan.engine, plan.child("a").id, report, idempotency_key=str(number))
    assert len(json.loads(plan.engine.store.plan(plan.ref)["keys:a"])) == 50


def test_a_report_after_the_end_is_refused_and_changes_nothing(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    plan.fail("a")
    before = world.engine.store.plan(plan.ref)
    with pytest.raises(ReportLate, match="failed"):
        plan.report("a", "completed")
    assert world.engine.store.plan(plan.ref) == before


def test_a_report_of_a_run_that_was_replaced_is_refused(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], task_retries=1)
    plan.begin()
    older = plan.child("a").id
    plan.fail("a")
    with pytest.raises(ReportLate, match="replaced"):
        plans.report(world.engine, older, TaskReport(status="completed"))


def test_a_session_without_a_task_has_nothing_to_report(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    with pytest.raises(NoPlan, match="no task"):
        plans.report(world.engine, plan.id, TaskReport(status="completed"))


PROPOSED = {"task": {"id": "more", "title": "One more"}, "why": "the parser is missing"}


def test_a_proposal_waits_for_a_person_and_holds_the_plan_open(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    plan.report("a", "in_progress", proposals=[PROPOSED])
    plan.finish("a")
    assert plan.status == "waiting"
    (proposal,) = plan.view.proposals
    assert proposal.task is not None
    assert (proposal.status, proposal.task.id, proposal.why) == (
        "open", "more", "the parser is missing",
    )  # fmt: skip
    plans.decide(world.engine, plan.id, proposal.id, accept=True, by="ann")
    assert plan.at_work() == {"more"}
    plan.finish("more")
    assert plan.status == "completed"
    assert plan.view.proposals[0].decided_by == "ann"


def test_a_refused_proposal_lets_the_plan_end(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    plan.report("a", "in_progress", proposals=[PROPOSED])
    plan.finish("a")
    plans.decide(world.engine, plan.id, "p1", accept=False, by="ann")
    assert plan.status == "completed"
    assert plan.statuses() == {"a": "completed"}


@pytest.mark.parametrize("accept", [True, False])
def test_a_decided_proposal_calls_for_no_person_and_is_read_by_the_next_turn(
    bench: Bench, accept: bool
) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    plan.report("a", "in_progress", proposals=[PROPOSED])
    (found,) = world.engine.attention.page().items
    assert [need.kind for need in found.needs] == ["proposal"]
    plans.decide(world.engine, plan.id, "p1", accept=accept, by="ann")
    assert world.engine.attention.page().items == []
    unread = list_messages(world.engine, plan.id, unread=True).items
    assert "proposal" in {message.kind for message in unread}
    assert world.engine.store.fields(plan.ref)["escalated"] == "0"


def test_a_proposal_that_nobody_decides_in_time_calls_for_no_person(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], proposal_timeout_s=60)
    plan.begin()
    plan.report("a", "in_progress", proposals=[PROPOSED])
    assert len(world.engine.attention.page().items) == 1
    world.later(180_000)
    assert plan.view.proposals[0].status == "refused"
    assert world.engine.attention.page().items == []


def test_a_proposal_is_decided_once(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    plan.report("a", "in_progress", proposals=[PROPOSED])
    plans.decide(world.engine, plan.id, "p1", accept=False, by="ann")
    with pytest.raises(PlanRefused, match="refused by ann"):
        plans.decide(world.engine, plan.id, "p1", accept=True, by="bob")
    with pytest.raises(PlanRefused, match="no proposal p9"):
        plans.decide(world.engine, plan.id, "p9", accept=True, by="bob")


def test_an_accepting_plan_takes_what_fits_and_says_what_does_not(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], proposals="accept")
    plan.begin()
    again = {"task": {"id": "a", "title": "Of the same id"}}
    lost = {"task": {"id": "lost", "title": "Lost", "dependencies": ["nowhere"]}}
    plan.report("a", "in_progress", proposals=[PROPOSED, again, lost])
    assert plan.at_work() == {"a", "more"}
    assert [one.status for one in plan.view.proposals] == ["accepted", "refused", "refused"]
    assert "nowhere" in plan.view.proposals[2].note
    assert plan.seen("a").title == "Do a"


def test_a_refusing_plan_records_what_was_proposed(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], proposals="refuse")
    plan.begin()
    plan.report("a", "in_progress", proposals=[PROPOSED])
    plan.finish("a")
    assert plan.status == "completed"
    assert [one.status for one in plan.view.proposals] == ["refused"]


def test_the_team_lead_hears_of_reports_proposals_and_ends(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    plan.report("a", "completed", pr_url="https://example.org/pr/1", notes="all of it")
    plan.report("b", "blocked", proposals=[PROPOSED])
    plan.finish("a")
    plan.fail("b")
    inbox = list_messages(world.engine, plan.id).items
    assert [(one.kind, one.text.partition(":")[0], one.escalates) for one in inbox] == [
        ("report", "task a", False),
        ("report", "task b", True),
        ("proposal", "task b", True),
        ("accepted", "task a", False),
        ("failed", "task b", True),
    ]
    assert inbox[0].text == "task a: completed (https://example.org/pr/1): all of it"


def test_a_child_that_is_accepted_after_the_plan_ended_is_told_to_the_team_lead(
    bench: Bench,
) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    plan.fail("a")
    plan.finish("b")
    assert plan.status == "completed"
    plan.resume_child("a")
    plan.finish("a")
    assert plan.statuses()["a"] == "failed"
    last = list_messages(world.engine, plan.id).items[-1]
    assert (last.kind, last.text) == ("end", "task a: accepted after the plan had ended")


def test_a_long_report_is_cut_between_characters(bench: Bench) -> None:
    plan = PlanWorld(World.of(bench), [{"id": "a"}])
    plan.begin()
    for before in ("", "."):
        plan.report("a", "in_progress", notes=before + "é" * 5000)
        text = list_messages(plan.engine, plan.id).items[-1].text
        assert text.endswith("éé")
        assert 3998 <= len(text.encode()) <= 4000


MORE = [{"task": {"id": "c", "title": "More"}}]


def test_an_open_proposal_is_refused_at_its_deadline_and_the_plan_ends(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], proposal_timeout_s=600.0)
    plan.begin()
    plan.report("a", "completed", proposals=MORE)
    plan.finish("a")
    [proposal] = plan.view.proposals
    assert (proposal.status, proposal.until) == ("open", "1970-01-01T00:26:40.000+00:00")
    world.later(590_000)
    assert plan.status == "waiting"
    version = plan.view.version
    world.later(70_000)
    [proposal] = plan.view.proposals
    assert (proposal.status, proposal.decided_by) == ("refused", "deadline")
    assert proposal.note == "no decision before its deadline"
    assert plan.status == "completed"
    assert plan.view.version > version
    assert plan.statuses() == {"a": "completed"}


def test_a_proposal_that_was_decided_is_left_alone_by_its_deadline(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], proposal_timeout_s=600.0)
    plan.begin()
    plan.report("a", "completed", proposals=[*MORE, {"task": {"id": "d", "title": "D"}}])
    plans.decide(world.engine, plan.id, "p1", accept=True, by="ann")
    world.later(700_000)
    decided = {one.id: (one.status, one.decided_by) for one in plan.view.proposals}
    assert decided == {"p1": ("accepted", "ann"), "p2": ("refused", "deadline")}
    assert plan.at_work() == {"a", "c"}


def test_the_deadline_of_a_proposal_waits_for_a_stopped_plan(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}], proposal_timeout_s=600.0)
    plan.begin()
    plan.report("a", "in_progress", proposals=MORE)
    world.engine.control.apply(plan.id, "stop")
    world.later(700_000)
    assert [one.status for one in plan.view.proposals] == ["open"]
