"""Limits of keys: how many attempts run at once, and who is next."""

from __future__ import annotations

import pytest
import redis

from app import shared
from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.sessions.submit import About
from app.settings import Settings
from leadhand.errors import LimitChanged, LimitUnknown
from tests.engine.driving import Bench
from tests.engine.locks.sessions import BOTH, DO, commands_of, items, taken
from tests.engine.world import World


def test_a_limit_is_changed_only_as_it_was_seen(world: World) -> None:
    engine, key = world.engine, "agent:a<b"
    with pytest.raises(LimitChanged):
        shared.set_limit(engine, key, concurrency=1, seen="any")
    first = shared.set_limit(engine, key, concurrency=2, per_minute=0.5)
    assert shared.read_limit(engine, key) == first
    second = shared.set_limit(
        engine, key, concurrency=3, seen=[shared.set_limit(engine, "key:x", concurrency=9), first]
    )
    for seen in ([first], []):
        with pytest.raises(LimitChanged):
            shared.set_limit(engine, key, concurrency=4, seen=seen)
        with pytest.raises(LimitChanged):
            shared.remove_limit(engine, key, seen=seen)
    assert shared.read_limit(engine, key) == second
    assert second in shared.list_limits(engine)
    assert shared.remove_limit(engine, key, seen="any")
    assert not shared.remove_limit(engine, key)
    with pytest.raises(LimitUnknown):
        shared.read_limit(engine, key)


def test_at_most_so_many_hold_a_limited_key(world: World) -> None:
    shared.set_limit(world.engine, "key:k", concurrency=2)
    refs = [world.session(f"/f{n}") for n in range(4)]
    grants = [world.grant(ref, "loop~1[1]/do") for ref in refs[:2]]
    assert world.claim(refs[2], "loop~1[1]/do").lock == "key:k"
    assert world.claim(refs[3], "loop~1[1]/do").lock == "key:k"
    world.settle(refs[0], grants[0])
    assert world.claim(refs[3], "loop~1[1]/do").lock == "key:k"
    world.grant(refs[2], "loop~1[1]/do")
    world.engine.attempts.release(refs[1], grants[1], why="drain")
    world.grant(refs[3], "loop~1[1]/do")


def behind_many(world: World) -> int:
    """How many of 300 that came before it with the same limit begin before one that is alone."""
    items(world, 300)
    at_work = taken(world)
    tickets, most = world.engine.store.fleet().tickets, Settings().window
    assert len(tickets("key:k")) <= most
    alone = items(world, 1)
    at_work += taken(world)
    before = 0
    while at_work[0][0] != alone:
        before += 1
        world.settle(*at_work.pop(0))
        world.later(1_000)
        at_work += taken(world)
        assert len(tickets("key:k")) <= most + 1
    return before


def test_a_small_session_is_not_behind_many_with_its_key(bench: Bench) -> None:
    world = World.of(bench)
    shared.set_limit(world.engine, "key:k", concurrency=2)
    assert behind_many(world) <= Settings().window + 2


def test_a_small_session_is_not_behind_many_with_its_rate(world: World) -> None:
    shared.set_limit(world.engine, "key:k", per_minute=60)
    assert behind_many(world) <= Settings().window + 2


def test_who_has_priority_goes_first_in_the_line_of_a_limited_key(bench: Bench) -> None:
    world = World.of(bench)
    shared.set_limit(world.engine, "key:k", concurrency=1)
    low, normal = items(world, 30, priority=9), items(world, 30)
    at_work = taken(world)
    high = items(world, 1, priority=0)
    at_work += taken(world)
    began = []
    for _ in range(12):
        began += [ref for ref, _ in at_work]
        world.settle(*at_work.pop())
        at_work += taken(world)
    assert began[:3] == [low, high, normal]
    assert set(began[3:]) == {normal}


def test_waiting_costs_the_same_beyond_the_window(world: World, redis_client: redis.Redis) -> None:
    shared.set_limit(world.engine, "key:k", concurrency=1)

    def cost(count: int) -> int:
        ref = items(world, count)
        at_work = taken(world)

        def three_looks() -> None:
            for _ in range(3):
                world.later(16_000)
                taken(world)

        commands = commands_of(redis_client, three_looks)
        world.engine.control.apply(ref.id, "abort")
        for one, grant in at_work:
            world.engine.attempts.release(one, grant, why="abort")
        world.later(60_000)
        return len(commands)

    few = cost(Settings().window + 4)
    assert cost(200) <= few * 1.02


def test_a_limit_that_is_set_later_holds_a_session_to_its_window(bench: Bench) -> None:
    world = World.of(bench)
    many = items(world, 100)
    shared.set_limit(world.engine, "key:k", concurrency=1)
    at_work = taken(world)
    assert len(at_work) == 1
    assert len(world.engine.store.fleet().tickets("key:k")) <= 2 * Settings().window
    shared.remove_limit(world.engine, "key:k")
    done = 0
    while at_work:
        world.settle(*at_work.pop(0))
        at_work += taken(world)
        done += 1
    assert done == 100
    assert world.engine.queries.session(many.id).status == "completed"


def test_two_who_need_two_slots_do_not_keep_each_other_from_both(bench: Bench) -> None:
    world = World.of(bench)
    shared.set_limit(world.engine, "key:k", per_minute=1)
    one, also = items(world, 1), items(world, 1, keys=("key:m",))
    world.settle(one, world.grant(one, "each~1#1"))
    first, second = items(world, 1, keys=BOTH), items(world, 1, keys=BOTH)
    assert world.claim(first, "each~1#1").lock == "key:k"
    shared.set_limit(world.engine, "key:m", per_minute=1)
    world.settle(also, world.grant(also, "each~1#1"))
    assert world.claim(second, "each~1#1").why == "rate"  # it is before the first in the other line
    assert world.claim(first, "each~1#1").why == "rate"
    world.hints.clear()
    world.later(60_000)
    assert {ref for ref, _ in world.hints} == {first, second}
    ((begun, grant),) = taken(world)
    world.settle(begun, grant)
    for _ in range(61):
        world.later(1_000)
    ((other, _),) = taken(world)
    assert {begun, other} == {first, second}


def test_who_waits_stands_in_the_line_of_a_limit_that_is_set_meanwhile(bench: Bench) -> None:
    world = World.of(bench)
    shared.set_limit(world.engine, "key:k", per_minute=60)
    world.grant(items(world, 1), "each~1#1")
    waits = items(world, 1, keys=BOTH)
    assert world.claim(waits, "each~1#1").why == "rate"
    shared.set_limit(world.engine, "key:m", concurrency=1)
    holder = items(world, 1, keys=("key:m",))
    held = world.grant(holder, "each~1#1")
    world.hints.clear()
    world.later(1_000)
    assert taken(world) == []
    tickets = world.engine.store.fleet().tickets
    assert [len(tickets(key)) for key in BOTH] == [1, 1]
    world.settle(holder, held)
    assert [ref for ref, _ in taken(world)] == [waits]


def test_who_cannot_come_idles_a_key_for_a_moment_only(bench: Bench) -> None:
    world = World.of(bench)
    shared.set_limit(world.engine, "key:k", concurrency=1)
    ((ref, grant),) = [(one := items(world, 1), world.grant(one, "each~1#1"))]
    gone, there = world.session("/gone"), world.session("/there")
    assert world.claim(gone, DO).why == "lock"
    assert world.claim(there, DO).why == "lock"
    world.hints.clear()
    world.settle(ref, grant)
    assert world.hints == [(gone, DO)]
    for _ in range(6):
        world.later(1_000)
    assert (there, DO) in world.hints
    begun = world.grant(there, DO)
    world.hints.clear()
    later = world.session("/later")
    assert world.claim(later, DO).why == "lock"
    world.settle(there, begun)
    assert (later, DO) in world.hints
    world.grant(later, DO)


def test_a_limit_taken_away_lets_all_go_on(world: World) -> None:
    shared.set_limit(world.engine, "key:k", concurrency=1)
    first, second = world.session("/f"), world.session("/g")
    world.grant(first, "loop~1[1]/do")
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.hints.clear()
    shared.remove_limit(world.engine, "key:k")
    assert world.hints == [(second, "loop~1[1]/do")]
    world.grant(second, "loop~1[1]/do")


def test_a_raised_limit_calls_those_who_wait(world: World) -> None:
    shared.set_limit(world.engine, "key:k", concurrency=1)
    refs = [world.session(f"/f{n}") for n in range(4)]
    world.grant(refs[0], "loop~1[1]/do")
    assert {world.claim(ref, "loop~1[1]/do").why for ref in refs[1:]} == {"lock"}
    shared.set_limit(world.engine, "key:k", concurrency=3)
    assert [world.claim(ref, "loop~1[1]/do").word for ref in refs[1:]] == [
        "granted", "granted", "refused",
    ]  # fmt: skip


def test_who_gives_up_a_turn_lets_the_next_one_be_called(world: World) -> None:
    first, second, third = world.session(), world.session(), world.session()
    world.grant(first, "loop~1[1]/do")
    for ref in (second, third):
        assert world.claim(ref, "loop~1[1]/do").why == "lock"
    world.engine.control.apply(first.id, "abort")
    world.later(60_000)
    world.hints.clear()
    world.engine.control.apply(second.id, "abort")
    assert (third, "loop~1[1]/do") in world.hints
    world.grant(third, "loop~1[1]/do")


def test_a_step_whose_turn_has_come_is_not_behind_its_siblings(world: World) -> None:
    shared.set_limit(world.engine, "key:k", concurrency=1)
    step = Step(id="each", action=Action.AGENT, for_each=tuple(range(60)), limits=("key:k",))
    id_ = world.engine.submit.program(Program(body=(step,)), About(kind="loop", name="x")).session
    ref = SessionRef(id_, id_)
    granted = []
    while world.hints:
        _, address = world.hints.pop(0)
        answer = world.claim(ref, address)
        if answer.word == "granted":
            granted.append(address)
            world.settle(ref, answer.grants[0])
    assert granted[:20] == [f"each~1#{n}" for n in range(1, 21)]
    assert len(granted) == 60


def test_a_queue_can_be_limited(world: World) -> None:
    shared.set_limit(world.engine, "queue:checks", concurrency=1)
    first, second = world.session("/f"), world.session("/g")
    for ref in (first, second):
        world.settle(ref, world.grant(ref, "loop~1[1]/do"))
    held = world.grant(first, "loop~1[1]/check")
    assert world.claim(second, "loop~1[1]/check").lock == "queue:checks"
    world.settle(first, held)
    world.grant(second, "loop~1[1]/check")
