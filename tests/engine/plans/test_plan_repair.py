"""The audit of plans: damage to a plan is named and repaired."""

from __future__ import annotations

import json
from typing import Any

from tests.engine.driving import Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.test_fsck import audit
from tests.engine.world import World


def kinds(world: World, *, repair: bool = False) -> set[str]:
    return {one.kind for one in audit(world.engine.audit.run, repair=repair).items}


def change_head(plan: PlanWorld, **fields: Any) -> None:
    key = plan.engine.store.keys.part(plan.ref, "plan")
    redis = plan.engine.store._redis
    head = json.loads(str(redis.hget(key, "head")))
    redis.hset(key, "head", json.dumps({**head, **fields}))


def test_a_counter_that_keeps_tasks_from_starting_is_set(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], at_once=1)
    plan.begin()
    change_head(plan, working=2)
    plan.finish("a")
    assert plan.at_work() == set()
    assert kinds(world, repair=True) == {"plan_adrift"}
    world.later(1_000)
    assert plan.at_work() == {"b"}
    assert kinds(world) == set()


def test_a_start_that_left_the_outbox_is_queued_again(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    deliver, world.engine.transitions.deliver = world.engine.transitions.deliver, lambda _: None
    plan.begin()
    world.engine.transitions.deliver = deliver
    world.engine.store.remove_errand(f"spawn|{plan.ref.member}a~1")
    assert kinds(world, repair=True) == {"task_stuck"}
    world.later(1_000)
    assert plan.at_work() == {"a"}


def test_an_end_that_left_the_outbox_is_delivered_again(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}])
    plan.begin()
    world.engine.transitions.deliver = lambda _: None
    plan.finish("a")
    world.engine.transitions.deliver = world.engine.outbox.run
    world.engine.store.remove_errand(f"deliver|{plan.child('a').member}")
    assert kinds(world, repair=True) == {"task_adrift"}
    world.later(1_000)
    assert plan.status == "completed"
