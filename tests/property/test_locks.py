"""Locks: who gets a folder or a limited key, in which order, and when it comes free."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
import redis

from app.engine import About
from app.errors import ControlRefused, InvalidDocument, LimitChanged, LimitUnknown
from app.keys import SessionRef
from app.outcomes import Outcome
from app.program import Action, Loop, OnFail, Program, Step
from app.records import Grant
from app.settings import Settings
from app.steering import Control
from tests.property.driving import Bench
from tests.property.test_fsck import audit
from tests.property.world import World

DO = "loop~1[1]/do"
FOLDER = "folder:here:/f"


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def test_a_folder_is_held_by_a_loop_until_it_closes(world: World) -> None:
    first, second = world.session(), world.session()
    world.settle(first, world.grant(first, "loop~1[1]/do"))
    refused = world.claim(second, "loop~1[1]/do")
    assert (refused.word, refused.why, refused.lock) == ("refused", "lock", "folder:here:/f")
    answer = world.settle(first, world.grant(first, "loop~1[1]/check"))
    world.settle(first, answer.grants[0], Outcome(word="succeeded", verdict="retry"))
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.hints.clear()
    world.turn(first, 2, "accept")
    assert (second, "loop~1[1]/do") in world.hints
    world.grant(second, "loop~1[1]/do")


def two_steps(world: World, *, needs: tuple[str, ...] | None = None) -> SessionRef:
    """A session with two doers that stand in no loop."""
    steps = (Step(id="a", action=Action.AGENT, folder=True),
             Step(id="b", action=Action.AGENT, folder=True, needs=needs))  # fmt: skip
    about = About(kind="flow", name="x", cwd="/f", folder="/f", place="here")
    id_ = world.engine.start(Program(body=steps), about).session
    return SessionRef(id_, id_)


def test_what_stands_in_no_loop_holds_its_folder_until_the_session_s_end(bench: Bench) -> None:
    world = World.of(bench)
    first, second = two_steps(world), two_steps(world)
    begun = world.grant(first, "a")
    assert world.claim(second, "a").why == "lock"
    world.settle(first, begun)
    assert world.claim(second, "a").why == "lock"
    (wait,) = world.engine.explain(second.id).waits
    assert f"held by session {first.id} since 1970-01-01" in wait.text
    told = world.told(second, "step.blocked")
    assert told == [("a", {"lock": "folder:here:/f", "holder": first.id})]
    last = world.grant(first, "b")
    world.hints.clear()
    world.settle(first, last)
    assert world.engine.session(first.id).status == "completed"
    assert (second, "a") in world.hints
    world.grant(second, "a")


def test_steps_of_one_session_that_stand_in_no_loop_share_its_folder(world: World) -> None:
    ref = two_steps(world, needs=())
    world.grant(ref, "a")
    world.grant(ref, "b")


def test_another_folder_or_place_is_another_lock(world: World) -> None:
    world.grant(world.session("/f"), "loop~1[1]/do")
    world.grant(world.session("/g"), "loop~1[1]/do")
    elsewhere = world.claim(world.session("/f", place="there"), "loop~1[1]/do")
    assert elsewhere.why == "place"


def test_a_pace_goes_with_its_limit(world: World, redis_client: redis.Redis) -> None:
    world.engine.limit("key:k", per_minute=6)
    world.grant(world.session(), "loop~1[1]/do")
    assert world.claim(world.session("/g"), "loop~1[1]/do").why == "rate"
    assert redis_client.hkeys("lh:rates") == ["key:k"]
    world.engine.unlimit("key:k")
    assert redis_client.hkeys("lh:rates") == []
    world.grant(world.session("/h"), "loop~1[1]/do")


def test_a_limit_is_changed_only_as_it_was_seen(world: World) -> None:
    engine, key = world.engine, "agent:a<b"
    with pytest.raises(LimitChanged):
        engine.limit(key, concurrency=1, seen="any")
    first = engine.limit(key, concurrency=2, per_minute=0.5)
    assert engine.limit_of(key) == first
    second = engine.limit(key, concurrency=3, seen=[engine.limit("key:x", concurrency=9), first])
    for seen in ([first], []):
        with pytest.raises(LimitChanged):
            engine.limit(key, concurrency=4, seen=seen)
        with pytest.raises(LimitChanged):
            engine.unlimit(key, seen=seen)
    assert engine.limit_of(key) == second
    assert second in engine.limits()
    assert engine.unlimit(key, seen="any")
    assert not engine.unlimit(key)
    with pytest.raises(LimitUnknown):
        engine.limit_of(key)


def test_who_came_first_is_called_first(world: World) -> None:
    first, second, third = world.session(), world.session(), world.session()
    world.settle(first, world.grant(first, "loop~1[1]/do"))
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    assert world.claim(third, "loop~1[1]/do").why == "lock"
    answer = world.settle(first, world.grant(first, "loop~1[1]/check"))
    world.settle(first, answer.grants[0], Outcome(word="succeeded", verdict="accept"))
    assert world.claim(third, "loop~1[1]/do").why == "lock"
    world.grant(second, "loop~1[1]/do")


def test_a_turn_that_is_not_used_goes_to_the_end_of_the_line(world: World) -> None:
    first, second, third = world.session(), world.session(), world.session()
    world.settle(first, world.grant(first, "loop~1[1]/do"))
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    assert world.claim(third, "loop~1[1]/do").why == "lock"
    world.engine.control(first.id, "abort")
    world.later(5_001)
    world.grant(third, "loop~1[1]/do")
    assert world.claim(second, "loop~1[1]/do").why == "lock"


def test_who_was_passed_over_leaves_no_ticket_when_it_goes_on(world: World) -> None:
    first, second, third = world.session(), world.session(), world.session()
    world.grant(first, DO)
    for ref in (second, third):
        assert world.claim(ref, DO).why == "lock"
    world.engine.control(first.id, "abort")
    world.later(50_000)
    world.later(5_001)
    world.grant(third, DO)
    tickets = world.engine.store.fleet().tickets
    assert [line.split("<")[-1] for line in tickets(FOLDER)] == [f"{second.member}{DO}"]
    world.engine.control(third.id, "abort")
    world.later(50_000)
    world.grant(second, DO)
    assert tickets(FOLDER) == []


def test_who_waits_for_one_lock_only_goes_past_many_who_wait_for_two(world: World) -> None:
    about = About(kind="loop", name="x", cwd="/f", folder="/f", place="here")
    alone = Program(
        body=(Loop(id="loop", body=(Step(id="do", action=Action.AGENT, folder=True),)),)
    )

    def needs_only_its_folder() -> SessionRef:
        id_ = world.engine.start(alone, about).session
        return SessionRef(id_, id_)

    holder = needs_only_its_folder()
    held = world.grant(holder, DO)
    world.engine.limit("key:k", concurrency=1)
    world.grant(world.session("/elsewhere"), DO)
    for _ in range(40):
        assert world.claim(world.session(), DO).why == "lock"
    last = needs_only_its_folder()
    assert world.claim(last, DO).why == "lock"
    world.hints.clear()
    world.engine.control(holder.id, "abort")
    world.engine.release(holder, held, why="abort")
    assert (last, DO) in world.hints
    world.grant(last, DO)


def commands_of(redis_client: redis.Redis, act: Callable[[], object]) -> list[str]:
    """All commands that the server ran meanwhile, those of scripts too."""
    with redis_client.monitor() as monitor:
        act()
        redis_client.echo("that was all")
        told = iter(lambda: str(monitor.next_command()["command"]), "ECHO that was all")
        return [command.lower() for command in told]


def test_a_lock_costs_the_same_however_many_wait_for_it(
    world: World, redis_client: redis.Redis
) -> None:
    def cost(others: int, folder: str) -> int:
        held, *waiting = [world.session(folder) for _ in range(others + 1)]
        world.grant(held, DO)
        for ref in waiting:
            assert world.claim(ref, DO).why == "lock"

        def one_after_the_other() -> None:
            world.engine.control(held.id, "abort")
            world.later(50_000)
            world.grant(waiting[0], DO)
            world.engine.control(waiting[-1].id, "abort")

        commands = commands_of(redis_client, one_after_the_other)
        reads = [command for command in commands if command.startswith("zrangebylex lh:tickets")]
        assert reads
        assert all(int(command.split()[-1]) <= 16 for command in reads)
        return len(reads)

    assert cost(60, "/many") <= cost(3, "/few")


@pytest.mark.parametrize("verb", ["stop", "abort"])
def test_what_a_session_held_is_free_when_it_ends(world: World, verb: str) -> None:
    first, second = world.session(), world.session()
    grant = world.grant(first, "loop~1[1]/do")
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.engine.control(first.id, verb)  # type: ignore[arg-type]
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.engine.release(first, grant, why=verb)
    world.grant(second, "loop~1[1]/do")


def test_a_resumed_session_takes_its_folder_again(world: World) -> None:
    first, second = world.session(), world.session()
    world.settle(first, world.grant(first, "loop~1[1]/do"))
    world.engine.control(first.id, "stop")
    world.turn(second, 1, "accept")
    world.engine.control(first.id, "resume")
    world.settle(first, world.grant(first, "loop~1[1]/check"))
    assert world.claim(world.session(), "loop~1[1]/do").why == "lock"


def test_a_lost_attempt_keeps_the_folder_of_its_turn(world: World) -> None:
    first, second = world.session(), world.session()
    world.settle(first, world.grant(first, "loop~1[1]/do"))
    world.grant(first, "loop~1[1]/check")
    world.later(40_000)
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.grant(first, "loop~1[1]/check")


def test_at_most_so_many_hold_a_limited_key(world: World) -> None:
    world.engine.limit("key:k", concurrency=2)
    refs = [world.session(f"/f{n}") for n in range(4)]
    grants = [world.grant(ref, "loop~1[1]/do") for ref in refs[:2]]
    assert world.claim(refs[2], "loop~1[1]/do").lock == "key:k"
    assert world.claim(refs[3], "loop~1[1]/do").lock == "key:k"
    world.settle(refs[0], grants[0])
    assert world.claim(refs[3], "loop~1[1]/do").lock == "key:k"
    world.grant(refs[2], "loop~1[1]/do")
    world.engine.release(refs[1], grants[1], why="drain")
    world.grant(refs[3], "loop~1[1]/do")


def test_a_lock_that_is_not_had_takes_no_other(world: World) -> None:
    world.engine.limit("key:k", concurrency=1)
    first, second, third = world.session("/f"), world.session("/g"), world.session("/g")
    world.grant(first, "loop~1[1]/do")
    assert world.claim(second, "loop~1[1]/do").lock == "key:k"
    assert world.engine.store.fleet().holders("folder:here:/g") == []
    assert world.claim(third, "loop~1[1]/do").why == "lock"


def test_a_rate_is_waited_for_in_order_and_holds_nobody(world: World) -> None:
    world.engine.limit("key:k", per_minute=2)
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
    world.engine.limit("key:k", per_minute=per_minute)
    refs = [world.session(f"/f{n}") for n in range(4)]
    world.grant(refs[0], "loop~1[1]/do")
    assert [world.claim(ref, "loop~1[1]/do").why for ref in refs[1:]] == ["rate"] * 3
    world.hints.clear()
    return refs[1:]


def test_a_pace_that_is_raised_is_so_for_those_who_wait(world: World) -> None:
    refs = paced(world)
    world.engine.limit("key:k", per_minute=600)
    assert world.hints == [(refs[0], DO)]
    world.grant(refs[0], DO)
    assert world.claim(refs[2], DO).why == "rate"
    world.later(1_000)
    assert world.hints[1:] == [(refs[1], DO)]
    world.grant(refs[1], DO)
    assert world.hints[2:] == [(refs[2], DO)]  # whose slot has come meanwhile too
    world.grant(refs[2], DO)


@pytest.mark.parametrize("concurrency", [None, 9])
def test_who_waited_for_a_pace_goes_on_without_it(world: World, concurrency: int | None) -> None:
    refs = paced(world)
    if concurrency:
        world.engine.limit("key:k", concurrency=concurrency)
    else:
        world.engine.unlimit("key:k")
    assert {ref for ref, _ in world.hints} == set(refs)
    for ref in refs:
        world.grant(ref, "loop~1[1]/do")


def test_a_slot_of_a_pace_that_came_back_meanwhile_is_none_of_it(world: World) -> None:
    first, *_ = paced(world)
    world.engine.limit("key:k", per_minute=600)
    world.engine.limit("key:k", per_minute=1)
    world.grant(first, "loop~1[1]/do")
    world.later(59_000)
    assert world.claim(world.session("/g"), "loop~1[1]/do").why == "rate"


def test_a_pace_that_stays_keeps_its_next_slot(world: World) -> None:
    refs = paced(world)
    world.engine.limit("key:k", per_minute=1, concurrency=9)
    assert world.hints == []
    assert world.claim(refs[0], "loop~1[1]/do").why == "rate"
    world.later(60_000)
    world.grant(refs[0], "loop~1[1]/do")


def test_the_sweep_finds_who_waits_for_an_old_pace(bench: Bench) -> None:
    """Whoever changed it was lost before it told those who wait."""
    world = World.of(bench)
    refs = paced(world, per_minute=0.05)
    world.engine.store.limit("key:k", None)
    world.later(1_000)
    assert {ref for ref, _ in world.hints} == set(refs)
    for ref in refs:
        world.grant(ref, "loop~1[1]/do")


def items(
    world: World, count: int, *, priority: int = 5, keys: tuple[str, ...] = ("key:k",)
) -> SessionRef:
    """A session whose many steps, or one, share a limited key, or several."""
    step = Step(id="each", action=Action.AGENT, for_each=tuple(range(count)), limits=keys)
    about = About(kind="loop", name="x", priority=priority)
    id_ = world.engine.start(Program(body=(step,)), about).session
    return SessionRef(id_, id_)


def taken(world: World) -> list[tuple[SessionRef, Grant]]:
    """What workers that are free get of the hints that are out."""
    granted: list[tuple[SessionRef, Grant]] = []
    for _ in range(1_000):
        if not world.hints:
            return granted
        ref, address = world.hints.pop(0)
        answer = world.claim(ref, address)
        if answer.word == "granted":
            granted.append((ref, answer.grants[0]))
    raise AssertionError("they call each other without end")


def work_for(world: World, seconds: int) -> list[tuple[int, SessionRef]]:
    """Who began when; each is done at once."""
    begun = []
    for _ in range(seconds):
        for ref, grant in taken(world):
            begun.append((world.now, ref))
            world.settle(ref, grant)
        world.later(1_000)
    return begun


@pytest.mark.parametrize("end", ["abort", "stop"])
def test_who_is_ended_leaves_no_slot_taken(bench: Bench, end: Literal["abort", "stop"]) -> None:
    world = World.of(bench)
    world.engine.limit("key:k", per_minute=6)
    many = items(world, 100)
    ((_, grant),) = taken(world)
    world.engine.control(many.id, end)
    world.engine.release(many, grant, why=end)
    alone = items(world, 1)
    began, asked = work_for(world, 12), world.now - 12_000
    assert [ref for _, ref in began] == [alone]
    assert began[0][0] - asked <= 10_000
    assert world.engine.session(alone.id).status == "completed"


def test_slots_do_not_add_up_while_nobody_works(bench: Bench) -> None:
    world = World.of(bench)
    world.engine.limit("key:k", per_minute=6)
    items(world, 100)
    for ref, grant in taken(world):
        world.settle(ref, grant)
    world.now += 3_600_000
    assert [len(work_for(world, 60)) for _ in range(2)] == [6, 6]


def test_slots_do_not_add_up_while_a_session_is_stopped(world: World) -> None:
    world.engine.limit("key:k", per_minute=6)
    many = items(world, 100)
    for ref, grant in taken(world):
        world.settle(ref, grant)
    world.engine.control(many.id, "stop")
    world.now += 3_600_000
    world.engine.control(many.id, "resume")
    assert [len(work_for(world, 60)) for _ in range(2)] == [6, 6]


def test_a_quick_pace_is_kept_between_two_sweeps(world: World) -> None:
    world.engine.limit("key:k", per_minute=600)
    items(world, 100)
    assert len(work_for(world, 10)) == 91  # the first at once, the last after nine seconds


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
    world.engine.limit("key:k", concurrency=2)
    assert behind_many(world) <= Settings().window + 2


def test_a_small_session_is_not_behind_many_with_its_rate(world: World) -> None:
    world.engine.limit("key:k", per_minute=60)
    assert behind_many(world) <= Settings().window + 2


def test_who_has_priority_goes_first_in_the_line_of_a_limited_key(bench: Bench) -> None:
    world = World.of(bench)
    world.engine.limit("key:k", concurrency=1)
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
    world.engine.limit("key:k", concurrency=1)

    def cost(count: int) -> int:
        ref = items(world, count)
        at_work = taken(world)

        def three_looks() -> None:
            for _ in range(3):
                world.later(16_000)
                taken(world)

        commands = commands_of(redis_client, three_looks)
        world.engine.control(ref.id, "abort")
        for one, grant in at_work:
            world.engine.release(one, grant, why="abort")
        world.later(60_000)
        return len(commands)

    few = cost(Settings().window + 4)
    assert cost(200) <= few * 1.02


def test_a_limit_that_is_set_later_holds_a_session_to_its_window(bench: Bench) -> None:
    world = World.of(bench)
    many = items(world, 100)
    world.engine.limit("key:k", concurrency=1)
    at_work = taken(world)
    assert len(at_work) == 1
    assert len(world.engine.store.fleet().tickets("key:k")) <= 2 * Settings().window
    world.engine.unlimit("key:k")
    done = 0
    while at_work:
        world.settle(*at_work.pop(0))
        at_work += taken(world)
        done += 1
    assert done == 100
    assert world.engine.session(many.id).status == "completed"


BOTH = ("key:k", "key:m")


def test_two_who_need_two_slots_do_not_keep_each_other_from_both(bench: Bench) -> None:
    world = World.of(bench)
    world.engine.limit("key:k", per_minute=1)
    one, also = items(world, 1), items(world, 1, keys=("key:m",))
    world.settle(one, world.grant(one, "each~1#1"))
    first, second = items(world, 1, keys=BOTH), items(world, 1, keys=BOTH)
    assert world.claim(first, "each~1#1").lock == "key:k"
    world.engine.limit("key:m", per_minute=1)
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
    world.engine.limit("key:k", per_minute=60)
    world.grant(items(world, 1), "each~1#1")
    waits = items(world, 1, keys=BOTH)
    assert world.claim(waits, "each~1#1").why == "rate"
    world.engine.limit("key:m", concurrency=1)
    holder = items(world, 1, keys=("key:m",))
    held = world.grant(holder, "each~1#1")
    world.hints.clear()
    world.later(1_000)
    assert taken(world) == []
    tickets = world.engine.store.fleet().tickets
    assert [len(tickets(key)) for key in BOTH] == [1, 1]
    world.settle(holder, held)
    assert [ref for ref, _ in taken(world)] == [waits]


class Unrest:
    """Sessions with one limit: hints are lost, sessions stopped, and the limit changed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.refs = [self.session() for _ in range(4)]
        self.at_work: list[tuple[SessionRef, Grant]] = []

    def session(self) -> SessionRef:
        width, priority = self.rng.choice([1, 20, 40]), self.rng.choice([0, 5])
        keys = self.rng.choice([("key:k",), ("key:m",), BOTH])
        return items(self.world, width, priority=priority, keys=keys)

    def work(self) -> None:
        self.at_work += taken(self.world)
        for ref, grant in self.rng.sample(self.at_work, k=-(-len(self.at_work) // 2)):
            self.at_work.remove((ref, grant))
            if self.rng.random() < 0.2:
                self.world.engine.release(ref, grant, why="drain")
            else:
                self.world.settle(ref, grant)

    def steer(self) -> None:
        self.tell(self.rng.choice(self.refs), self.rng.choice(["stop", "resume"]))

    def tell(self, ref: SessionRef, verb: Control) -> None:
        with suppress(ControlRefused):
            self.world.engine.control(ref.id, verb)

    def limit(self) -> None:
        most, pace = self.rng.choice([None, 1, 3]), self.rng.choice([30.0, 600.0])
        self.world.engine.limit(self.rng.choice(BOTH), concurrency=most, per_minute=pace)

    def unlimit(self) -> None:
        self.world.engine.unlimit(self.rng.choice(BOTH))

    def lose(self) -> None:
        self.world.hints.clear()

    def pause(self) -> None:
        for ref, grant in self.at_work:
            self.world.settle(ref, grant)
        self.at_work.clear()
        self.world.later(self.rng.choice([1_000, 40_000]))

    def act(self) -> None:
        acts = (self.work, self.work, self.steer, self.limit, self.unlimit, self.lose, self.pause)
        self.rng.choice(acts)()

    def all_done(self) -> bool:
        for _ in range(20):
            self.work()
            self.world.later(1_000)
        statuses = [self.world.engine.session(ref.id).status for ref in self.refs]
        return set(statuses) <= {"completed", "aborted"}


@pytest.mark.parametrize("seed", range(3))
def test_nobody_waits_for_a_limit_for_ever_whatever_happens(world: World, seed: int) -> None:
    unrest, engine = Unrest(world, seed), world.engine
    for _ in range(8):
        for _ in range(6):
            unrest.act()
        assert audit(engine.fsck).items == []
    for key in BOTH:
        engine.limit(key, concurrency=2, per_minute=60)
    unrest.pause()
    unrest.tell(unrest.refs[0], "abort")
    for ref in unrest.refs[1:]:
        unrest.tell(ref, "resume")
    assert any(unrest.all_done() for _ in range(15))
    for key in BOTH:
        assert engine.store.fleet().tickets(key) == []
        assert engine.store.fleet().holders(key) == []


def test_who_cannot_come_idles_a_key_for_a_moment_only(bench: Bench) -> None:
    world = World.of(bench)
    world.engine.limit("key:k", concurrency=1)
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
    world.engine.limit("key:k", concurrency=1)
    first, second = world.session("/f"), world.session("/g")
    world.grant(first, "loop~1[1]/do")
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.hints.clear()
    world.engine.unlimit("key:k")
    assert world.hints == [(second, "loop~1[1]/do")]
    world.grant(second, "loop~1[1]/do")


def test_a_raised_limit_calls_those_who_wait(world: World) -> None:
    world.engine.limit("key:k", concurrency=1)
    refs = [world.session(f"/f{n}") for n in range(4)]
    world.grant(refs[0], "loop~1[1]/do")
    assert {world.claim(ref, "loop~1[1]/do").why for ref in refs[1:]} == {"lock"}
    world.engine.limit("key:k", concurrency=3)
    assert [world.claim(ref, "loop~1[1]/do").word for ref in refs[1:]] == [
        "granted", "granted", "refused",
    ]  # fmt: skip


def test_who_gives_up_a_turn_lets_the_next_one_be_called(world: World) -> None:
    first, second, third = world.session(), world.session(), world.session()
    world.grant(first, "loop~1[1]/do")
    for ref in (second, third):
        assert world.claim(ref, "loop~1[1]/do").why == "lock"
    world.engine.control(first.id, "abort")
    world.later(60_000)
    world.hints.clear()
    world.engine.control(second.id, "abort")
    assert (third, "loop~1[1]/do") in world.hints
    world.grant(third, "loop~1[1]/do")


def test_a_step_whose_turn_has_come_is_not_behind_its_siblings(world: World) -> None:
    world.engine.limit("key:k", concurrency=1)
    step = Step(id="each", action=Action.AGENT, for_each=tuple(range(60)), limits=("key:k",))
    id_ = world.engine.start(Program(body=(step,)), About(kind="loop", name="x")).session
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


def test_a_session_moves_to_another_place_with_what_waits(world: World) -> None:
    ref = world.session(place="gone")
    assert world.claim(ref, "loop~1[1]/do").why == "place"
    with pytest.raises(InvalidDocument, match="no worker is there"):
        world.engine.rehome(ref.id, "here")
    world.worker("here", "/elsewhere")
    with pytest.raises(InvalidDocument, match="beneath /elsewhere"):
        world.engine.rehome(ref.id, "here")
    world.worker("here", "/f")
    world.hints.clear()
    world.engine.rehome(ref.id, "here")
    assert (ref, "loop~1[1]/do") in world.hints
    world.turn(ref, 1, "accept")
    assert world.engine.session(ref.id).status == "completed"


def test_nothing_is_held_or_waited_for_when_all_have_ended(world: World) -> None:
    world.engine.limit("key:k", concurrency=1)
    refs = [world.session() for _ in range(3)]
    for ref in refs:
        world.turn(ref, 1, "accept")
    store = world.engine.store
    assert store.fleet().holders("folder:here:/f") == []
    assert store.fleet().holders("key:k") == []
    assert store.fleet().tickets("folder:here:/f") == []


def test_a_small_session_is_not_behind_large_ones(world: World) -> None:
    def wide(width: int) -> SessionRef:
        step = Step(id="each", action=Action.AGENT, for_each=tuple(range(width)))
        id_ = world.engine.start(Program(body=(step,)), About(kind="loop", name="x")).session
        return SessionRef(id_, id_)

    for _ in range(3):
        wide(500)
    small = wide(5)
    done = 0
    while world.engine.session(small.id).status == "active":
        ref, address = world.hints.pop(0)
        world.settle(ref, world.grant(ref, address))
        done += 1
    assert done <= 3 * Settings().window + 3 * 5 + 5


def test_a_folder_may_have_any_name(world: World) -> None:
    first, second = world.session("/a<b|c{d}"), world.session("/a<b|c{d}")
    world.grant(first, "loop~1[1]/do")
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.engine.control(first.id, "abort")
    world.later(45_000)
    world.grant(second, "loop~1[1]/do")


def test_two_locks_over_two_sessions_lock_nobody_out(world: World) -> None:
    world.engine.limit("key:k", concurrency=1)
    first, second = world.session(), world.session()
    world.settle(first, world.grant(first, "loop~1[1]/do"))
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    answer = world.settle(first, world.grant(first, "loop~1[1]/check"))
    world.settle(first, answer.grants[0], Outcome(word="succeeded", verdict="retry"))
    world.turn(first, 2, "accept")
    world.turn(second, 1, "accept")
    assert world.engine.session(second.id).status == "completed"


def test_a_session_that_fails_under_a_resume_is_looked_at_again(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, "loop~1[1]/do")
    world.engine.control(ref.id, "stop")
    looks = []

    def failing_meanwhile(session: SessionRef, verb: str) -> dict[str, object]:
        looks.append(session)
        if len(looks) == 1:
            bad = Outcome(word="failed", retryable=False)
            world.engine.settle(world.engine.work(ref, grant), bad, take=[], worker="w")
            return {}
        return anew(session, verb)  # type: ignore[arg-type,return-value]

    anew = world.engine.steering._anew
    world.engine.steering._anew = failing_meanwhile  # type: ignore[assignment,method-assign]
    assert world.engine.control(ref.id, "resume").status == "active"
    assert len(looks) == 2
    world.grant(ref, "loop~2[1]/do")


def test_one_that_cannot_be_looked_at_holds_up_no_other(world: World) -> None:
    first, second = world.session("/f"), world.session("/g")
    store = world.engine.store
    store._redis.hset(store.keys.program("other"), "document", '{"from": "the future"}')
    store._redis.hset(store.keys.part(first, "session"), "program", "other")
    world.engine.registry.forget_facts()
    world.hints.clear()
    world.later(5_000)
    assert (second, "loop~1[1]/do") in world.hints


def test_a_queue_can_be_limited(world: World) -> None:
    world.engine.limit("queue:checks", concurrency=1)
    first, second = world.session("/f"), world.session("/g")
    for ref in (first, second):
        world.settle(ref, world.grant(ref, "loop~1[1]/do"))
    held = world.grant(first, "loop~1[1]/check")
    assert world.claim(second, "loop~1[1]/check").lock == "queue:checks"
    world.settle(first, held)
    world.grant(second, "loop~1[1]/check")


def test_a_reader_is_told_who_holds_what_a_session_waits_for(world: World) -> None:
    world.worker("here")
    first, second = world.session(), world.session()
    world.grant(first, "loop~1[1]/do")
    assert world.engine.session(second.id).notes == []
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    note = f"loop~1[1]/do waits for folder:here:/f, held by {first.id}"
    assert world.engine.session(second.id).notes == [note]


def moved(world: World, ref: SessionRef, real: str) -> str:
    """What a worker hears whose attempt at a doer found the folder's real path."""
    work = world.engine.work(ref, world.grant(ref, "loop~1[1]/do"))
    return world.engine.move_lock(work, Path(real)).word


def test_two_names_of_one_folder_are_one_lock_once_its_place_has_looked(world: World) -> None:
    by_name, by_link = world.session("/f"), world.session("/link")
    held = world.grant(by_name, "loop~1[1]/do")
    assert moved(world, by_link, "/f") == "released"
    refused = world.claim(by_link, "loop~1[1]/do")
    assert (refused.why, refused.lock) == ("lock", "folder:here:/f")
    world.settle(by_name, held)
    world.hints.clear()
    world.engine.control(by_name.id, "abort")
    assert (by_link, "loop~1[1]/do") in world.hints
    work = world.engine.work(by_link, world.grant(by_link, "loop~1[1]/do"))
    assert work.grant.attempt == 1  # the look did not count
    third = world.session("/link")
    assert moved(world, third, "/f") == "released"
    assert world.claim(third, "loop~1[1]/do").why == "lock"


def test_whoever_gave_up_the_wrong_lock_calls_those_who_wait_for_it(world: World) -> None:
    by_link, other = world.session("/link"), world.session("/link")
    work = world.engine.work(by_link, world.grant(by_link, "loop~1[1]/do"))
    assert world.claim(other, "loop~1[1]/do").why == "lock"
    world.hints.clear()
    world.engine.move_lock(work, Path("/f"))
    assert (other, "loop~1[1]/do") in world.hints
    assert moved(world, other, "/elsewhere") == "released"  # it saw another link meanwhile


def test_a_session_s_lock_is_moved_once_so_that_hosts_that_disagree_get_on(world: World) -> None:
    ref = world.session("/link")
    assert moved(world, ref, "/f") == "released"
    assert moved(world, ref, "/g") == "kept"


def test_a_lock_is_not_moved_under_what_runs(world: World) -> None:
    steps = (Step(id="a", action=Action.AGENT, folder=True),
             Step(id="b", action=Action.AGENT, folder=True, needs=()))  # fmt: skip
    about = About(kind="loop", name="x", cwd="/link", folder="/link", place="here")
    id_ = world.engine.start(Program(body=(Loop(id="l", body=steps, max_iterations=1),)), about)
    ref = SessionRef(id_.session, id_.session)
    world.grant(ref, "l~1[1]/a")
    work = world.engine.work(ref, world.grant(ref, "l~1[1]/b"))
    assert world.engine.move_lock(work, Path("/f")).word == "kept"
    assert world.engine.beat(ref, work.grant).word == "ok"


def swept(world: World, ref: SessionRef) -> str | None:
    """Where a session is when its hint has gone unheard."""
    world.hints.clear()
    world.later(10_000)
    return world.engine.session(ref.id).place


def test_a_session_that_nobody_began_moves_where_its_place_is_gone(world: World) -> None:
    ref = world.session(place="gone", chosen="yes")
    world.worker("here", "/f")
    world.worker("there", "/g")
    assert swept(world, ref) == "here"
    assert (ref, "loop~1[1]/do") in world.hints
    world.turn(ref, 1, "accept")
    assert world.engine.session(ref.id).status == "completed"


def test_a_session_stays_where_another_place_is_not_sure(world: World) -> None:
    named = world.session(place="gone")
    there = world.session("/g/x", place="there", chosen="yes")
    twice = world.session("/g", place="gone", chosen="yes")
    nowhere = world.session("/h", place="gone", chosen="yes")
    world.worker("here", "/f", "/g")
    world.worker("there", "/g")
    world.worker("anywhere")
    assert [swept(world, ref) for ref in (named, there, twice, nowhere)] == [
        "gone", "there", "gone", "gone",
    ]  # fmt: skip


def test_a_session_that_was_begun_stays_at_its_place(bench: Bench) -> None:
    world = World.of(bench)
    ref = world.session(chosen="yes")
    world.engine.release(ref, world.grant(ref, "loop~1[1]/do"), why="drain")
    world.worker("there", "/f")
    assert swept(world, ref) == "here"
    world.settle(ref, world.grant(ref, "loop~1[1]/do"))
    assert swept(world, ref) == "here"


def test_a_move_to_another_place_is_looked_at_there_again(world: World) -> None:
    world.worker("here")
    world.worker("there")
    ref = world.session("/link")
    assert moved(world, ref, "/f") == "released"
    world.engine.rehome(ref.id, "there")
    there = world.at("there")
    assert moved(there, ref, "/mnt/f") == "released"


def test_a_session_s_own_loops_wait_for_the_lock_that_it_has_now(world: World) -> None:
    do = (Step(id="do", action=Action.AGENT, folder=True),)
    loops = tuple(
        Loop(id=id_, body=do, needs=(), max_iterations=1, on_fail=OnFail.CONTINUE)
        for id_ in ("a", "b")
    )
    about = About(kind="loop", name="x", cwd="/link", folder="/link", place="here")
    id_ = world.engine.start(Program(body=loops), about).session
    ref = SessionRef(id_, id_)
    work = world.engine.work(ref, world.grant(ref, "a~1[1]/do"))
    assert world.claim(ref, "b~1[1]/do").lock == "folder:here:/link"
    world.engine.move_lock(work, Path("/f"))
    first = world.grant(ref, "a~1[1]/do")
    assert world.claim(ref, "b~1[1]/do").lock == "folder:here:/f"
    world.hints.clear()
    world.settle(ref, first)
    assert (ref, "b~1[1]/do") in world.hints


def test_a_quick_step_goes_along_only_where_its_turn_has_the_folder(world: World) -> None:
    about = About(kind="loop", name="x", cwd="/f", folder="/f", place="here")
    check = Step(id="check", action=Action.CHECK, folder=True, quick=True)
    judge = Step(id="judge", action=Action.JUDGE)
    body = (Step(id="do", action=Action.AGENT, folder=True), check, judge)
    first = world.engine.start(Program(body=(Loop(id="loop", body=body),)), about).session
    ref = SessionRef(first, first)
    along = world.settle(ref, world.grant(ref, "loop~1[1]/do")).grants
    assert [grant.address for grant in along] == ["loop~1[1]/check"]
    alone = (Step(id="a", action=Action.TOOL), check.model_copy(update={"id": "b"}))
    second = world.engine.start(Program(body=alone), about).session
    other = SessionRef(second, second)
    assert world.settle(other, world.grant(other, "a")).grants == ()
    assert world.claim(other, "b").why == "lock"
