"""A checker whose answers are no verdict in two iterations in a row ends the loop that needs it."""

from __future__ import annotations

import pytest

from app.compiler.workflow import compile_loop
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.sessions.submit import About
from leadhand.models.documents import LoopDocument
from tests.engine.world import World
from workers.checkers.combine import judge

UNCLEAR = Outcome(word="succeeded", verdict="retry", text="Hm.", decided_by="none")
RETRY = Outcome(word="succeeded", verdict="retry", text="mend it", decided_by="line")
ACCEPT = Outcome(word="succeeded", verdict="accept", decided_by="line")


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def begun(world: World, **more: object) -> SessionRef:
    checkers = [{"prompt": "Good?", "name": "critic"}, {"command": "pytest"}]
    given = {"task": "t", "baseline": False, "checkers": checkers, "max_iterations": 5, **more}
    program = compile_loop(LoopDocument.model_validate(given))
    id_ = world.engine.submit.program(program, About(kind="loop", name="x")).session
    return SessionRef(id_, id_)


def iterate(world: World, ref: SessionRef, iteration: int, critic: Outcome, tests: Outcome) -> str:
    """Run an iteration with these outcomes of its checks; returns the judge's verdict."""
    block = f"loop~1[{iteration}]"
    work = Outcome(word="succeeded", text=f"work {iteration}")
    world.settle(ref, world.grant(ref, f"{block}/do"), work)
    world.settle(ref, world.grant(ref, f"{block}/check.critic"), critic)
    (held,) = world.settle(ref, world.grant(ref, f"{block}/check.pytest"), tests).grants
    judged = judge(world.engine.attempts.work(ref, held).inputs)
    world.settle(ref, held, judged)
    return str(judged.verdict)


@pytest.mark.parametrize("tests", [ACCEPT, RETRY])
def test_second_unclear_iteration_in_a_row_ends_the_loop(world: World, tests: Outcome) -> None:
    ref = begun(world)
    assert iterate(world, ref, 1, UNCLEAR, tests) == "retry"
    assert iterate(world, ref, 2, UNCLEAR, tests) == "terminate"
    view = world.engine.queries.session(ref.id)
    assert view.status == "failed"
    assert view.reason is not None
    assert view.reason.root.code == "judge_unclear"
    assert view.reason.root.text == (
        "no verdict in the answers of 'critic' in two iterations in a row"
    )
    [entry] = world.engine.queries.ledger(ref.id).items[1:]
    assert [check["decided_by"] for check in entry.checks] == ["none", "line"]
    [action] = world.engine.explainer.explain(ref.id).actions
    assert action.command == f"leadhand resume {ref.id}"


def test_clear_answer_in_between_begins_the_count_anew(world: World) -> None:
    ref = begun(world)
    for iteration, critic in enumerate((UNCLEAR, RETRY, UNCLEAR, RETRY, UNCLEAR), 1):
        assert iterate(world, ref, iteration, critic, ACCEPT) == "retry"
    assert world.engine.queries.result(ref.id).verdict == "max_iterations"


def test_checker_that_the_rule_does_not_need_may_stay_unclear(world: World) -> None:
    ref = begun(world, rule="any")
    assert iterate(world, ref, 1, UNCLEAR, RETRY) == "retry"
    assert iterate(world, ref, 2, UNCLEAR, RETRY) == "retry"
    assert iterate(world, ref, 3, UNCLEAR, ACCEPT) == "accept"


def test_resumed_loop_begins_without_the_unclear_answers_before(world: World) -> None:
    ref = begun(world)
    iterate(world, ref, 1, UNCLEAR, ACCEPT)
    iterate(world, ref, 2, UNCLEAR, ACCEPT)
    world.engine.control.apply(ref.id, "resume")
    world.settle(ref, world.grant(ref, "loop~2[1]/do"), Outcome(word="succeeded"))
    world.settle(ref, world.grant(ref, "loop~2[1]/check.critic"), UNCLEAR)
    (held,) = world.settle(ref, world.grant(ref, "loop~2[1]/check.pytest"), ACCEPT).grants
    assert judge(world.engine.attempts.work(ref, held).inputs).verdict == "retry"
