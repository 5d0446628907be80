"""Rates: how many attempts with a key begin in a minute."""

from __future__ import annotations

from typing import Literal

import pytest
import redis

from app import shared
from app.core.addresses import SessionRef
from tests.engine.driving import Bench
from tests.engine.locks.sessions import DO, items, taken, work_for
from tests.engine.world import World


def test_a_pace_goes_with_its_limit(world: World, redis_client: redis.Redis) -> None:
    shared.set_limit(world.engine, "key:k", per_minute=6)
    world.grant(world.session(), "loop~1[1]/do")
    assert world.claim(world.session("/g"), "loop~1[1]/do").why == "rate"
    assert redis_client.hkeys("lh:rates") == ["key:k"]
    shared.remove_limit(world.engine, "key:k")
    assert redis_client.hkeys("lh:rates") == []
    world.grant(world.session("/h"), "loop~1[1]/do")


def test_a_rate_is_waited_for_in_order_and_holds_nobody(world: World) -> None:
    shared.set_limit(world.engine, "key:k", per_minute=2)
    refs = [world.session(f"/f{n}") for n in range(3)]
    world.grant(refs[0], "loop~1[1]/do")
    for ref in refs[1:]:
        refused = world.claim(ref, "loop~1[1]/do")
        assert (refused.word, refused.why) == ("refused", "rate")
    world.hints.clear()
    world.later(30_000)
    assert (refs[1], "loop~1[1]/do") in world.hints
    assert (refs[2], "loop~1[1]/do") not in world.hints
    world.grant(refs[1], "loop~1[1]/do")
    assert world.claim(refs[2], "loop~1[1]/do").why == "rate"
    world.later(30_000)
    world.grant(refs[2], "loop~1[1]/do")


def paced(world: World, *, per_minute: float = 1) -> list[SessionRef]:
    """Sessions that wait in the line of a key whose first slot was taken."""
    shared.set_limit(world.engine, "key:k", per_minute=per_minute)
    refs = [world.session(f"/f{n}") for n in range(4)]
    world.grant(refs[0], "loop~1[1]/do")
    assert [world.claim(ref, "loop~1[1]/do").why for ref in refs[1:]] == ["rate"] * 3
    world.hints.clear()
    return refs[1:]


def test_a_pace_that_is_raised_is_so_for_those_who_wait(world: World) -> None:
    refs = paced(world)
    shared.set_limit(world.engine, "key:k", per_minute=600)
    assert world.hints == [(refs[0], DO)]
    world.grant(refs[0], DO)
    assert world.claim(refs[2], DO).why == "rate"
    world.later(1_000)
    assert world.hints[1:] == [(refs[1], DO)]
    world.grant(refs[1], DO)
    assert world.hints[2:] == [(refs[2], DO)]  # its slot is due by now as well
    world.grant(refs[2], DO)


@pytest.mark.parametrize("concurrency", [None, 9])
def test_who_waited_for_a_pace_goes_on_without_it(world: World, concurrency: int | None) -> None:
    refs = paced(world)
    if concurrency:
        shared.set_limit(world.engine, "key:k", concurrency=concurrency)
    else:
        shared.remove_limit(world.engine, "key:k")
    assert {ref for ref, _ in world.hints} == set(refs)
    for ref in refs:
        world.grant(ref, "loop~1[1]/do")


def test_a_slot_of_a_pace_that_came_back_meanwhile_is_none_of_it(world: World) -> None:
    first, *_ = paced(world)
    shared.set_limit(world.engine, "key:k", per_minute=600)
    shared.set_limit(world.engine, "key:k", per_minute=1)
    world.grant(first, "loop~1[1]/do")
    world.later(59_000)
    assert world.claim(world.session("/g"), "loop~1[1]/do").why == "rate"


def test_a_pace_that_stays_keeps_its_next_slot(world: World) -> None:
    refs = paced(world)
    shared.set_limit(world.engine, "key:k", per_minute=1, concurrency=9)
    assert world.hints == []
    assert world.claim(refs[0], "loop~1[1]/do").why == "rate"
    world.later(60_000)
    world.grant(refs[0], "loop~1[1]/do")


def test_the_sweep_finds_who_waits_for_an_old_pace(bench: Bench) -> None:
    """The process that changed the rate died before it notified the waiting steps."""
    world = World.of(bench)
    refs = paced(world, per_minute=0.05)
    world.engine.store.limit("key:k", None)
    world.later(1_000)
    assert {ref for ref, _ in world.hints} == set(refs)
    for ref in refs:
        world.grant(ref, "loop~1[1]/do")


@pytest.mark.parametrize("end", ["abort", "stop"])
def test_who_is_ended_leaves_no_slot_taken(bench: Bench, end: Literal["abort", "stop"]) -> None:
    world = World.of(bench)
    shared.set_limit(world.engine, "key:k", per_minute=6)
    many = items(world, 100)
    ((_, grant),) = taken(world)
    world.engine.control.apply(many.id, end)
    world.engine.attempts.release(many, grant, why=end)
    alone = items(world, 1)
    began, asked = work_for(world, 12), world.now - 12_000
    assert [ref for _, ref in began] == [alone]
    assert began[0][0] - asked <= 10_000
    assert world.engine.queries.session(alone.id).status == "completed"


def test_slots_do_not_add_up_while_nobody_works(bench: Bench) -> None:
    world = World.of(bench)
    shared.set_limit(world.engine, "key:k", per_minute=6)
    items(world, 100)
    for ref, grant in taken(world):
        world.settle(ref, grant)
    world.now += 3_600_000
    assert [len(work_for(world, 60)) for _ in range(2)] == [6, 6]


def test_slots_do_not_add_up_while_a_session_is_stopped(world: World) -> None:
    shared.set_limit(world.engine, "key:k", per_minute=6)
    many = items(world, 100)
    for ref, grant in taken(world):
        world.settle(ref, grant)
    world.engine.control.apply(many.id, "stop")
    world.now += 3_600_000
    world.engine.control.apply(many.id, "resume")
    assert [len(work_for(world, 60)) for _ in range(2)] == [6, 6]


def test_a_quick_pace_is_kept_between_two_sweeps(world: World) -> None:
    shared.set_limit(world.engine, "key:k", per_minute=600)
    items(world, 100)
    assert len(work_for(world, 10)) == 91  # the first at once, the last after nine seconds
