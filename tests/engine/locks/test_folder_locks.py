"""Folder locks: who holds one, until when, and who is next."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from app import shared
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, OnFail, Program, Step
from app.core.states import Control
from app.sessions.rewind import ResumePlan
from app.sessions.submit import About
from app.settings import Settings
from tests.engine.driving import Bench
from tests.engine.locks.sessions import DO, FOLDER, commands_of, two_steps
from tests.engine.world import World


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


def test_what_stands_in_no_loop_holds_its_folder_until_the_session_s_end(bench: Bench) -> None:
    world = World.of(bench)
    first, second = two_steps(world), two_steps(world)
    begun = world.grant(first, "a")
    assert world.claim(second, "a").why == "lock"
    world.settle(first, begun)
    assert world.claim(second, "a").why == "lock"
    (wait,) = world.engine.explainer.explain(second.id).waits
    assert f"held by session {first.id} since 1970-01-01" in wait.text
    told = world.told(second, "step.blocked")
    assert told == [("a", {"lock": "folder:here:/f", "holder": first.id})]
    last = world.grant(first, "b")
    world.hints.clear()
    world.settle(first, last)
    assert world.engine.queries.session(first.id).status == "completed"
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
    world.engine.control.apply(first.id, "abort")
    world.later(5_001)
    world.grant(third, "loop~1[1]/do")
    assert world.claim(second, "loop~1[1]/do").why == "lock"


def test_who_was_passed_over_leaves_no_ticket_when_it_goes_on(world: World) -> None:
    first, second, third = world.session(), world.session(), world.session()
    world.grant(first, DO)
    for ref in (second, third):
        assert world.claim(ref, DO).why == "lock"
    world.engine.control.apply(first.id, "abort")
    world.later(50_000)
    world.later(5_001)
    world.grant(third, DO)
    tickets = world.engine.store.fleet().tickets
    assert [line.split("<")[-1] for line in tickets(FOLDER)] == [f"{second.member}{DO}"]
    world.engine.control.apply(third.id, "abort")
    world.later(50_000)
    world.grant(second, DO)
    assert tickets(FOLDER) == []


def test_who_waits_for_one_lock_only_goes_past_many_who_wait_for_two(world: World) -> None:
    about = About(kind="loop", name="x", cwd="/f", folder="/f", place="here")
    alone = Program(
        body=(Loop(id="loop", body=(Step(id="do", action=Action.AGENT, folder=True),)),)
    )

    def needs_only_its_folder() -> SessionRef:
        id_ = world.engine.submit.program(alone, about).session
        return SessionRef(id_, id_)

    holder = needs_only_its_folder()
    held = world.grant(holder, DO)
    shared.set_limit(world.engine, "key:k", concurrency=1)
    world.grant(world.session("/elsewhere"), DO)
    for _ in range(40):
        assert world.claim(world.session(), DO).why == "lock"
    last = needs_only_its_folder()
    assert world.claim(last, DO).why == "lock"
    world.hints.clear()
    world.engine.control.apply(holder.id, "abort")
    world.engine.attempts.release(holder, held, why="abort")
    assert (last, DO) in world.hints
    world.grant(last, DO)


def test_a_lock_costs_the_same_however_many_wait_for_it(
    world: World, redis_client: redis.Redis
) -> None:
    def cost(others: int, folder: str) -> int:
        held, *waiting = [world.session(folder) for _ in range(others + 1)]
        world.grant(held, DO)
        for ref in waiting:
            assert world.claim(ref, DO).why == "lock"

        def one_after_the_other() -> None:
            world.engine.control.apply(held.id, "abort")
            world.later(50_000)
            world.grant(waiting[0], DO)
            world.engine.control.apply(waiting[-1].id, "abort")

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
    world.engine.control.apply(first.id, verb)  # type: ignore[arg-type]
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.engine.attempts.release(first, grant, why=verb)
    world.grant(second, "loop~1[1]/do")


def test_a_resumed_session_takes_its_folder_again(world: World) -> None:
    first, second = world.session(), world.session()
    world.settle(first, world.grant(first, "loop~1[1]/do"))
    world.engine.control.apply(first.id, "stop")
    world.turn(second, 1, "accept")
    world.engine.control.apply(first.id, "resume")
    world.settle(first, world.grant(first, "loop~1[1]/check"))
    assert world.claim(world.session(), "loop~1[1]/do").why == "lock"


def test_a_lost_attempt_keeps_the_folder_of_its_turn(world: World) -> None:
    first, second = world.session(), world.session()
    world.settle(first, world.grant(first, "loop~1[1]/do"))
    world.grant(first, "loop~1[1]/check")
    world.later(40_000)
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.grant(first, "loop~1[1]/check")


def test_a_lock_that_is_not_had_takes_no_other(world: World) -> None:
    shared.set_limit(world.engine, "key:k", concurrency=1)
    first, second, third = world.session("/f"), world.session("/g"), world.session("/g")
    world.grant(first, "loop~1[1]/do")
    assert world.claim(second, "loop~1[1]/do").lock == "key:k"
    assert world.engine.store.fleet().holders("folder:here:/g") == []
    assert world.claim(third, "loop~1[1]/do").why == "lock"


def test_nothing_is_held_or_waited_for_when_all_have_ended(world: World) -> None:
    shared.set_limit(world.engine, "key:k", concurrency=1)
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
        id_ = world.engine.submit.program(
            Program(body=(step,)), About(kind="loop", name="x")
        ).session
        return SessionRef(id_, id_)

    for _ in range(3):
        wide(500)
    small = wide(5)
    done = 0
    while world.engine.queries.session(small.id).status == "active":
        ref, address = world.hints.pop(0)
        world.settle(ref, world.grant(ref, address))
        done += 1
    assert done <= 3 * Settings().window + 3 * 5 + 5


def test_a_folder_may_have_any_name(world: World) -> None:
    first, second = world.session("/a<b|c{d}"), world.session("/a<b|c{d}")
    world.grant(first, "loop~1[1]/do")
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    world.engine.control.apply(first.id, "abort")
    world.later(45_000)
    world.grant(second, "loop~1[1]/do")


def test_two_locks_over_two_sessions_lock_nobody_out(world: World) -> None:
    shared.set_limit(world.engine, "key:k", concurrency=1)
    first, second = world.session(), world.session()
    world.settle(first, world.grant(first, "loop~1[1]/do"))
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    answer = world.settle(first, world.grant(first, "loop~1[1]/check"))
    world.settle(first, answer.grants[0], Outcome(word="succeeded", verdict="retry"))
    world.turn(first, 2, "accept")
    world.turn(second, 1, "accept")
    assert world.engine.queries.session(second.id).status == "completed"


def test_a_session_that_fails_under_a_resume_is_looked_at_again(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, "loop~1[1]/do")
    world.engine.control.apply(ref.id, "stop")
    looks = []

    def failing_meanwhile(session: SessionRef, verb: Control) -> ResumePlan:
        looks.append(session)
        if len(looks) == 1:
            bad = Outcome(word="failed", retryable=False)
            world.engine.attempts.settle(
                world.engine.attempts.work(ref, grant), bad, take=[], worker="w"
            )
            return ResumePlan()
        return plan_again(session, verb)

    plan_again = world.engine.control._plan_again
    world.engine.control._plan_again = failing_meanwhile  # type: ignore[assignment,method-assign]
    assert world.engine.control.apply(ref.id, "resume").status == "active"
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


def test_a_reader_is_told_who_holds_what_a_session_waits_for(world: World) -> None:
    world.worker("here")
    first, second = world.session(), world.session()
    world.grant(first, "loop~1[1]/do")
    assert world.engine.queries.session(second.id).notes == []
    assert world.claim(second, "loop~1[1]/do").why == "lock"
    note = f"loop~1[1]/do waits for folder:here:/f, held by {first.id}"
    assert world.engine.queries.session(second.id).notes == [note]


def test_a_session_s_own_loops_wait_for_the_lock_that_it_has_now(world: World) -> None:
    do = (Step(id="do", action=Action.AGENT, folder=True),)
    loops = tuple(
        Loop(id=id_, body=do, needs=(), max_iterations=1, on_fail=OnFail.CONTINUE)
        for id_ in ("a", "b")
    )
    about = About(kind="loop", name="x", cwd="/link", folder="/link", place="here")
    id_ = world.engine.submit.program(Program(body=loops), about).session
    ref = SessionRef(id_, id_)
    work = world.engine.attempts.work(ref, world.grant(ref, "a~1[1]/do"))
    assert world.claim(ref, "b~1[1]/do").lock == "folder:here:/link"
    world.engine.attempts.move_lock(work, Path("/f"))
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
    first = world.engine.submit.program(Program(body=(Loop(id="loop", body=body),)), about).session
    ref = SessionRef(first, first)
    along = world.settle(ref, world.grant(ref, "loop~1[1]/do")).grants
    assert [grant.address for grant in along] == ["loop~1[1]/check"]
    alone = (Step(id="a", action=Action.TOOL), check.model_copy(update={"id": "b"}))
    second = world.engine.submit.program(Program(body=alone), about).session
    other = SessionRef(second, second)
    assert world.settle(other, world.grant(other, "a")).grants == ()
    assert world.claim(other, "b").why == "lock"
