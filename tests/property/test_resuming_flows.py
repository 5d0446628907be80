"""A flow that failed goes on where it failed, in the iterations that it was in."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings

from app.outcomes import Outcome
from app.program import Action, Loop, OnFail, Origin, Program, Step
from tests.flows import ask, flow, llm, loop
from tests.property.driving import Bench
from tests.property.interpreter import Run, Said
from tests.property.test_rewinding import Says, Session, nested, plain, says
from tests.property.world import World


def as_flow(body: tuple[Step | Loop, ...]) -> tuple[Step | Loop, ...]:
    """The same as if it had been made of a flow, whose loops end the flow where they fail."""
    origin, made = Origin(path="steps[0]", kind="llm", index=1, total=1), []
    for node in body:
        more: dict[str, object] = {"origin": origin}
        if isinstance(node, Loop):
            more |= {"on_fail": OnFail.STOP, "body": as_flow(node.body)}
        made.append(node.model_copy(update=more))
    return tuple(made)


def failing(say: Says, at: set[str]) -> Says:
    """The same, but for what fails the first time."""
    left = set(at)

    def said(address: str, step: Step) -> Said:
        if plain(address) in left:
            left.discard(plain(address))
            return Said("failed")
        return say(address, step)

    return said


@pytest.mark.timeout(1200)
def test_a_failed_flow_goes_on_with_the_step_that_failed(bench: Bench) -> None:
    world, tried = World.of(bench), 0
    thorough = settings.get_current_profile_name() == "thorough"
    for seed in range(500 if thorough else 25):
        random = Random(seed)
        tree = Program(body=as_flow(nested(random)))
        say = says(seed)
        order = [plain(address) for address in Run(tree, say).order]
        whole = Session(world, tree, say)
        whole.go()
        fails = sorted({random.randrange(len(order)) for _ in range(3)})
        session = Session(world, tree, failing(say, {order[at] for at in fails}))
        done = session.go()
        for at in fails:
            assert (session.status, done) == ("failed", order[: at + 1]), (seed, at)
            world.engine.control(session.ref.id, "resume")
            done = done[:-1] + session.go()
            tried += 1
        assert done == order, seed
        assert session.status == whole.status
        assert session.given == whole.given, seed
    assert tried > 40
