"""A step in a loop that is retried: the iteration continues from it, with the work before it."""

from __future__ import annotations

import pytest

from app.core.outcomes import Outcome
from app.errors import PositionRefused
from tests.engine.driving import Bench
from tests.engine.world import World


def test_a_retried_check_judges_the_same_work_again(bench: Bench) -> None:
    world = World.of(bench)
    ref = world.session()
    for iteration in (1, 2, 3):
        world.turn(ref, iteration, "retry")
    assert world.engine.queries.session(ref.id).status == "failed"
    world.hints.clear()
    world.engine.step_verbs.retry(ref.id, "check")
    assert [address for _, address in world.hints] == ["loop~2[3]/check"]
    answer = world.settle(ref, world.grant(ref, "loop~2[3]/check"))
    world.settle(ref, answer.grants[0], Outcome(word="succeeded", verdict="accept"))
    assert world.engine.queries.session(ref.id).status == "completed"


def test_a_retried_doer_begins_its_iteration_again(bench: Bench) -> None:
    world = World.of(bench)
    ref = world.session()
    world.turn(ref, 1, "retry")
    world.settle(ref, world.grant(ref, "loop~1[2]/do"))
    world.engine.control.apply(ref.id, "stop")
    with pytest.raises(PositionRefused, match="it has not run"):
        world.engine.step_verbs.retry(ref.id, "loop~1[2]/judge")
    world.hints.clear()
    world.engine.step_verbs.retry(ref.id, "do")
    assert [address for _, address in world.hints] == ["loop~2[2]/do"]
