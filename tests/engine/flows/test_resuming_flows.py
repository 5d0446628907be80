"""A flow that failed goes on where it failed, in the iterations that it was in."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings

from app.compiler import compile_document
from app.core.program import Action, Loop, OnFail, Origin, Program, Step
from app.errors import PositionRefused
from leadhand.cli.render.live_text import sentence
from leadhand.cli.render.progress import Picture
from leadhand.models.documents import Budget
from leadhand.models.views.step import Event
from tests.engine.driving import Bench
from tests.engine.world import World
from tests.flows import ask, flow, llm, loop
from tests.model.interpreter import Run, Said
from tests.model.sequences import Says, Session, nested, plain, says


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
            world.engine.control.apply(session.ref.id, "resume")
            done = done[:-1] + session.go()
            tried += 1
        assert done == order, seed
        assert session.status == whole.status
        assert session.given == whole.given, seed
    assert tried > 40


def test_a_check_that_did_not_accept_is_asked_again(bench: Bench) -> None:
    check = {"type": "check", "checker": {"command": "make test"}, "label": "verify"}
    tree = compile_document(flow(loop(llm(label="work"), check, ask(), label="l")))
    verdicts = iter(("retry", "accept"))

    def say(address: str, step: Step) -> Said:
        if step.action is Action.CHECK:
            return Said("succeeded", next(verdicts))
        if plain(address) == "l[1]/verify":
            return Said("succeeded" if "~2" in address else "failed")
        return Said("succeeded", "accept" if step.action is Action.BREAK else None)

    session = Session(World.of(bench), tree, say)
    assert session.go() == ["l[1]/work", "l[1]/verify-said", "l[1]/verify"]
    session.world.engine.control.apply(session.ref.id, "resume")
    assert session.go() == ["l[1]/verify-said", "l[1]/verify", "l[1]/break3"]
    assert session.given["l[1]/verify"]["arguments"]["verdict"] == "accept"
    assert session.status == "completed"


def test_a_flow_whose_budget_is_raised_goes_on_where_it_was(bench: Bench) -> None:
    world = World.of(bench)
    tree = compile_document(flow(loop(llm(label="a"), llm(label="b"), ask(), label="l")))
    session = Session(world, tree, says_no, budget=Budget(steps=4))
    assert session.go() == ["l[1]/a", "l[1]/b", "l[1]/break3", "l[2]/a"]
    assert session.status == "failed"
    world.engine.control.apply(session.ref.id, "resume", budget=Budget(steps=6))
    assert session.go() == ["l[2]/b", "l[2]/break3"]
    world.engine.control.apply(session.ref.id, "resume", budget=Budget(steps=100))
    assert session.go(1) == ["l[3]/a"]


def says_no(address: str, step: Step) -> Said:
    return Said("succeeded", "retry" if step.action is Action.BREAK else None)


def test_a_loop_that_had_its_turns_gets_them_anew_where_it_stands(bench: Bench) -> None:
    world = World.of(bench)
    inner = loop(llm(label="b"), ask(), label="in", maxIterations=2)
    tree = compile_document(flow(loop(llm(label="a"), inner, label="out", maxIterations=3)))
    once = ["out[1]/in[1]/b", "out[1]/in[1]/break2", "out[1]/in[2]/b", "out[1]/in[2]/break2"]
    session = Session(world, tree, says_no)
    assert session.go() == ["out[1]/a", *once]
    world.engine.control.apply(session.ref.id, "resume")
    assert (session.go(), session.status) == (once, "failed")
    world.engine.control.apply(session.ref.id, "resume", max_iterations=3)
    assert session.go() == [*once, "out[1]/in[3]/b", "out[1]/in[3]/break2"]
    assert world.engine.queries.session(session.ref.id).status == "failed"
    world.engine.control.apply(
        session.ref.id, "resume", after="out[1]/in[3]/break2", max_iterations=4
    )
    assert session.go() == ["out[1]/in[4]/b", "out[1]/in[4]/break2"]
    world.engine.control.apply(session.ref.id, "resume", after="out[1]/a", max_iterations=1)
    assert session.go() == ["out[1]/in[1]/b", "out[1]/in[1]/break2"]


def test_a_ceiling_is_refused_with_a_point_from_which_its_loop_is_not_opened(bench: Bench) -> None:
    world = World.of(bench)
    turns = loop(llm(label="b"), ask(), label="in", maxIterations=2)
    session = Session(world, compile_document(flow(llm(label="a"), llm(label="c"), turns)), says_no)
    session.go()
    with pytest.raises(PositionRefused, match=r"loop 'in'.* leave `after` out"):
        world.engine.control.apply(session.ref.id, "resume", after="a", max_iterations=9)
    world.engine.control.apply(session.ref.id, "resume", after="c", max_iterations=3)
    assert len(session.go()) == 6


def test_an_iteration_of_an_if_or_a_flat_loop_is_heeded(bench: Bench) -> None:
    world = World.of(bench)
    branch = {**ask("if"), "then": [llm(label="x")], "label": "which"}
    flat = {"type": "startLoop", "label": "l"}
    nested_one = flow(loop(branch, llm(label="y"), ask(), label="l"))
    for document, said in (
        (nested_one, "0[1]/0/0"),
        (flow(flat, llm(), {"type": "endLoop"}), "1[1]"),
    ):
        session = Session(world, compile_document(document), says_yes_to_ifs)
        done = session.go(7)
        world.engine.control.apply(session.ref.id, "stop")
        session.resume(said)
        at = done.index("l[1]/x" if "0/0" in said else "l[1]/llm2")
        assert session.go(2) == done[at + 1 : at + 3]


def says_yes_to_ifs(address: str, step: Step) -> Said:
    if step.action is Action.DECIDE:
        return Said("succeeded", "accept")
    return says_no(address, step)


def test_a_label_is_not_looked_for_before_the_iteration_in_which_it_failed(bench: Bench) -> None:
    tree = compile_document(flow(loop(llm(label="a"), llm(label="b"), label="l"), attempts=1))
    session = Session(World.of(bench), tree, failing(says_no, {"l[2]/b"}))
    session.go()
    with pytest.raises(PositionRefused, match=r"l~1\[2\]/b is failed; .*: l~1\[1\]/b"):
        session.resume("b")
    session.resume("l~1[1]/b")
    assert session.go(1) == ["l[2]/a"]
    session.world.engine.control.apply(session.ref.id, "stop")
    session.resume("b")
    told = [e.model_dump() for e in session.world.engine.queries.events(session.ref.id, limit=1000)]
    events = [Event.model_validate(event) for event in told if "after" in event["fields"]]
    sentences = [sentence(Picture(session.ref.id), event) for event in events]
    assert sentences == ["[0:00] session is active after l~1[1]/b"] * 2
    assert session.go(2) == ["l[2]/a", "l[2]/b"]
