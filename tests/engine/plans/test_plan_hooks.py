"""Webhooks of a plan: what its children report and propose, and tasks that failed for good."""

from __future__ import annotations

import json
from typing import Any

from app.webhooks import body_of
from tests.engine.driving import Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World

EVENTS = ("reported", "proposed", "task_failed")


def delivered(plan: PlanWorld) -> list[dict[str, Any]]:
    """The bodies that are due, in the order of their ids; each is claimed once."""
    engine, found = plan.engine, []
    for line in sorted(engine.store.due_hooks(99)):
        name = line.split("|", 2)[2]
        arguments: dict[str, Any] = {"delivery": name, "nonce": name, "most": 8, "hold_ms": 10**9}
        taken = engine.store.run("webhook_claim", plan.ref, "", arguments)
        assert taken.delivery is not None
        body = json.loads(body_of(engine.queries.session(plan.id), name, taken.delivery))
        assert name.startswith(f"{plan.id}-{body['event']}-")
        assert body["session"]["id"] == plan.id
        found.append(body)
    return found


def begun(bench: Bench, *events: str, **more: Any) -> PlanWorld:
    hook = {"url": "https://h.example/", "events": events}
    plan = PlanWorld(World.of(bench), [{"id": "a"}, {"id": "b"}], webhook=hook, **more)
    plan.begin()
    return plan


def test_a_report_and_its_proposals_are_delivered_without_their_texts(bench: Bench) -> None:
    plan = begun(bench, *EVENTS)
    child = plan.child("a").id
    proposed = [{"task": {"id": "c", "title": "hush"}, "why": "hush"}]
    plan.report("a", "blocked", notes="hush", proposals=proposed)
    plan.world.now += 5
    plan.report("a", "blocked", notes="hush", proposals=proposed)  # a repeated one is no new event
    bodies = delivered(plan)
    assert len(bodies) == 2
    first, second = bodies
    assert (first["event"], first["task"]) == (
        "proposed",
        {"id": "a", "run": 1, "session": child, "status": "open", "proposal": "p1",
         "proposed": "c"},
    )  # fmt: skip
    assert (second["event"], second["task"]) == (
        "reported",
        {"id": "a", "run": 1, "session": child, "status": "blocked"},
    )
    assert "hush" not in json.dumps([first, second])
    assert first["session"]["status"] == "active"


def test_a_proposal_says_what_became_of_it(bench: Bench) -> None:
    plan = begun(bench, "proposed", proposals="refuse")
    plan.report("a", "in_progress", proposals=[{"task": {"id": "c", "title": "C"}}])
    [body] = delivered(plan)
    assert body["task"]["status"] == "refused"


def test_a_task_is_reported_as_failed_after_its_last_run_alone(bench: Bench) -> None:
    plan = begun(bench, "task_failed", task_retries=1)
    plan.fail("a")
    assert delivered(plan) == []
    plan.fail("a")
    [body] = delivered(plan)
    assert (body["event"], body["task"]["run"], body["task"]["status"]) == (
        "task_failed", 2, "failed",
    )  # fmt: skip
    assert body["task"]["reason"]["code"] == "terminated"
    assert "text" not in body["task"]["reason"]


def test_an_event_is_asked_for_by_its_whole_name(bench: Bench) -> None:
    """`failed` is a part of `task_failed`."""
    plan = begun(bench, "task_failed", task_retries=0)
    plan.fail("a")
    plan.fail("b")
    assert plan.status == "failed"
    assert [body["event"] for body in delivered(plan)] == ["task_failed", "task_failed"]


def test_an_event_that_nobody_asked_for_is_not_delivered(bench: Bench) -> None:
    plan = begun(bench, "ended", task_retries=0)
    plan.report("a", "in_progress")
    plan.fail("a")
    assert delivered(plan) == []
