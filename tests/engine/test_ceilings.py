"""A ceiling that a resume names takes effect, or is refused with the reason."""

from __future__ import annotations

import re

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Program, Step
from app.errors import InvalidDocument
from app.sessions.submit import About
from tests.engine.driving import Bench
from tests.engine.world import World

ABOUT = About(kind="loop", name="x")
JUDGE = Step(id="judge", action=Action.JUDGE)
DO = Step(id="do", action=Action.AGENT)
LOOP = Program(body=(Loop(id="loop", body=(DO, JUDGE), max_iterations=2),))
STEPS = Program(body=(Step(id="a", action=Action.AGENT), Step(id="b", action=Action.AGENT)))
BOTH = Program(body=(DO, Loop(id="loop", body=(DO, JUDGE), max_iterations=2)))
RETRY = Outcome(word="succeeded", verdict="retry")
BAD = Outcome(word="failed", retryable=False)


@pytest.fixture
def world(bench: Bench) -> World:
    return World.of(bench)


def started(world: World, program: Program) -> SessionRef:
    id_ = world.engine.submit.program(program, ABOUT).session
    return SessionRef(id_, id_)


def turn(world: World, ref: SessionRef, iteration: int) -> None:
    block = f"loop~1[{iteration}]"
    (judge,) = world.settle(ref, world.grant(ref, f"{block}/do")).grants
    world.settle(ref, judge, RETRY)


def ceiling(world: World, ref: SessionRef, turn: str = "loop~1") -> int:
    return world.engine.store.turns(ref, [turn])[turn].max


def refused(world: World, ref: SessionRef, most: int, why: str) -> None:
    before = world.engine.store.fields(ref)
    with pytest.raises(InvalidDocument, match=re.escape(why)):
        world.engine.control.apply(ref.id, "resume", max_iterations=most)
    assert world.engine.store.fields(ref) == before


def nested_to_its_cap(world: World, depth: int) -> SessionRef:
    """A session whose innermost loop, so deep in others, has reached its cap."""
    body: tuple[Step | Loop, ...] = (DO, JUDGE)
    for level in range(depth, -1, -1):
        body = (Loop(id=f"l{level}", label=f"l{level}", body=body, max_iterations=2),)
    ref = started(world, Program(body=body))
    around = "".join(f"l{level}~1[1]/" for level in range(depth))
    for iteration in (1, 2):
        block = f"{around}l{depth}~1[{iteration}]"
        (judge,) = world.settle(ref, world.grant(ref, f"{block}/do")).grants
        world.settle(ref, judge, RETRY)
    return ref


@pytest.mark.parametrize("depth", [1, 2])
def test_the_cap_of_a_loop_inside_a_loop_ends_the_session_with_max_iterations(
    world: World, depth: int
) -> None:
    ref = nested_to_its_cap(world, depth)
    result = world.engine.queries.result(ref.id)
    assert (result.status, result.verdict) == ("failed", "max_iterations")
    closed = [fields for _, fields in world.told(ref, "loop.closed")]
    assert [isinstance(f, dict) and f["verdict"] for f in closed] == ["max_iterations"] * (
        depth + 1
    )
    reason = world.engine.queries.session(ref.id).reason
    assert reason is not None
    assert reason.root.code == "max_iterations"
    assert reason.root.text == "not accepted within 2 iterations"
    resume = f"leadhand resume {ref.id} --max-iterations 4"
    assert world.engine.explainer.explain(ref.id).next[0] == resume


def test_a_failed_step_inside_a_loop_in_a_loop_still_terminates(world: World) -> None:
    inner = Loop(id="inner", body=(DO, JUDGE), max_iterations=2)
    ref = started(world, Program(body=(Loop(id="outer", body=(inner,), max_iterations=2),)))
    world.settle(ref, world.grant(ref, "outer~1[1]/inner~1[1]/do"), BAD)
    result = world.engine.queries.result(ref.id)
    assert (result.status, result.verdict) == ("failed", "terminate")


def test_the_ceiling_of_a_loop_that_was_stopped_is_the_one_that_is_named(bench: Bench) -> None:
    world = World.of(bench)
    ref = started(world, LOOP)
    turn(world, ref, 1)
    world.engine.control.apply(ref.id, "stop")
    world.engine.control.apply(ref.id, "resume", max_iterations=3)
    assert ceiling(world, ref) == 3
    for iteration in (2, 3):
        turn(world, ref, iteration)
    view = world.engine.queries.session(ref.id)
    assert (view.status, view.counters.iterations) == ("failed", 3)


def test_a_ceiling_below_where_a_loop_is_is_refused(world: World) -> None:
    ref = started(world, LOOP)
    turn(world, ref, 1)
    world.engine.control.apply(ref.id, "stop")
    refused(world, ref, 1, "'loop~1' is in iteration 2; give at least that number")


@pytest.mark.parametrize("failed", [True, False])
def test_a_ceiling_is_refused_where_there_is_no_loop(world: World, failed: bool) -> None:
    ref = started(world, STEPS)
    if failed:
        world.settle(ref, world.grant(ref, "a"), BAD)
    else:
        world.engine.control.apply(ref.id, "stop")
    refused(world, ref, 9, "this resume opens no loop, and none is open; leave it out")


def test_a_ceiling_is_refused_where_its_loop_comes_later(world: World) -> None:
    ref = started(world, BOTH)
    world.settle(ref, world.grant(ref, "do"), BAD)
    refused(world, ref, 9, "this resume opens no loop, and none is open; leave it out")


def test_a_ceiling_is_that_of_the_loop_which_reached_it(world: World) -> None:
    ref = started(world, BOTH)
    world.settle(ref, world.grant(ref, "do"))
    for iteration in (1, 2):
        turn(world, ref, iteration)
    assert world.engine.queries.session(ref.id).status == "failed"
    world.engine.control.apply(ref.id, "resume", max_iterations=5)
    assert ceiling(world, ref, "loop~2") == 5


def test_a_resume_tells_the_address_that_it_took(world: World) -> None:
    ref = started(world, STEPS)
    world.settle(ref, world.grant(ref, "a"))
    world.engine.control.apply(ref.id, "stop")
    assert world.engine.control.apply(ref.id, "resume", after="0").resumed_after == "a"
    world.settle(ref, world.grant(ref, "b"), BAD)
    assert world.engine.control.apply(ref.id, "resume", after="0").resumed_after == "a"
    world.engine.control.apply(ref.id, "stop")
    assert world.engine.control.apply(ref.id, "resume").resumed_after is None
