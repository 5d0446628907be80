"""A loop that goes round and changes nothing is told so, and then ended."""

from __future__ import annotations

import pytest

from app.compiler.workflow import compile_loop
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.sessions.submit import About
from leadhand.models.documents import LoopDocument
from tests.engine.world import World
from workers.prompts import DoerInputs, doer_prompt


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def begun(world: World, **more: int) -> SessionRef:
    given = {
        "task": "Do it",
        "baseline": False,
        "checkers": [{"command": "lint"}],
        "max_iterations": 9,
        **more,
    }
    program = compile_loop(LoopDocument.model_validate(given))
    id_ = world.engine.submit.program(program, About(kind="loop", name="x")).session
    return SessionRef(id_, id_)


def refused(world: World, ref: SessionRef, iteration: int, work: str) -> str:
    """Run an iteration whose work is refused, and return the doer's prompt."""
    block = f"loop~1[{iteration}]"
    doer = world.grant(ref, f"{block}/do")
    told = doer_prompt(DoerInputs.model_validate(world.engine.attempts.work(ref, doer).inputs))
    world.settle(ref, doer, Outcome(word="succeeded", text=work))
    bad = Outcome(word="succeeded", verdict="retry", text="E501")
    (judge,) = world.settle(ref, world.grant(ref, f"{block}/check.lint"), bad).grants
    checks = {"checks": [{"name": "lint", "verdict": "retry", "feedback": "E501"}]}
    judged = Outcome.model_validate({"word": "succeeded", "verdict": "retry", "value": checks})
    world.settle(ref, judge, judged)
    return told


def test_after_three_of_the_same_the_doer_is_told_and_after_four_it_ends(world: World) -> None:
    ref = begun(world)
    for iteration in (1, 2, 3):
        assert "No Progress" not in refused(world, ref, iteration, "the same")
    told = refused(world, ref, 4, "the same")
    assert "the last 3 iterations left the same work" in told
    view = world.engine.queries.session(ref.id)
    assert view.status == "failed"
    assert view.reason is not None
    assert view.reason.root.code == "no_progress"
    text = "the same work was refused in the same way 4 times by lint"
    assert view.reason.root.text == text
    assert world.engine.queries.result(ref.id).verdict == "terminate"
    assert world.engine.queries.session(ref.id).counters.iterations == 4


def test_other_work_begins_the_count_anew(world: World) -> None:
    ref = begun(world)
    for iteration, work in enumerate(("a", "a", "a", "b", "a", "a", "a"), 1):
        refused(world, ref, iteration, work)
    assert world.engine.queries.session(ref.id).status == "active"
    assert "No Progress" in refused(world, ref, 8, "a")
    assert world.engine.queries.session(ref.id).status == "failed"


def test_it_can_be_turned_off(world: World) -> None:
    ref = begun(world, no_progress=0)
    for iteration in range(1, 9):
        assert "No Progress" not in refused(world, ref, iteration, "the same")
    assert world.engine.queries.session(ref.id).status == "active"


def test_the_last_iteration_ends_by_its_limit(world: World) -> None:
    ref = begun(world, max_iterations=4)
    for iteration in range(1, 5):
        refused(world, ref, iteration, "the same")
    assert world.engine.queries.result(ref.id).verdict == "max_iterations"
