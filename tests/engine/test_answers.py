"""Answers of people: the first one counts, and later ones are refused with its author and time."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.compiler import compile_document
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.sessions.submit import About
from leadhand.errors import AnswerUnwanted
from tests.engine.driving import Bench, Drive
from tests.engine.world import World
from tests.flows import flow, loop
from workers.attempt.settle import park


def ask(id_: str) -> Step:
    return Step(id=id_, action=Action.HUMAN, timeout_s=60, inputs={"question": "well?"})


AFTER = Step(id="after", action=Action.AGENT)


def asking(world: World, *body: Step) -> SessionRef:
    """A session whose first step has asked."""
    id_ = world.engine.submit.program(Program(body=body), About(kind="flow", name="x")).session
    ref = SessionRef(id_, id_)
    put(world, ref, body[0].id)
    return ref


def put(world: World, ref: SessionRef, address: str) -> None:
    assert park(world.engine, world.engine.attempts.work(ref, world.grant(ref, address))) is None


def unwanted(world: World, ref: SessionRef, text: str, why: str, **more: Any) -> None:
    with pytest.raises(AnswerUnwanted, match=re.escape(why)):
        world.engine.answers.give(ref.id, text, **more)


@pytest.fixture
def world(bench: Bench) -> World:
    return World.of(bench)


def test_a_question_of_a_session_below_is_named_by_that(world: World) -> None:
    given = flow({"type": "human", "question": "well?", "label": "ask"})
    document = given.model_dump(mode="json", exclude_unset=True) | {"kind": "flow"}
    kid = Step(id="kid", action=Action.CHILD, inputs={"document": document})
    parent = asking(world, kid)
    unwanted(world, parent, "yes", "none of its steps waits for a person")
    (child,) = world.engine.store.children(parent)
    put(world, SessionRef(child, parent.id), "ask")
    unwanted(world, parent, "yes", f"of the sessions below it: answer {child}")


@pytest.mark.parametrize("address", [None, "ask"])
def test_a_second_answer_hears_who_was_first_and_when(world: World, address: str | None) -> None:
    ref = asking(world, ask("ask"), AFTER)
    world.engine.answers.give(ref.id, "yes", by="token t1")
    world.now += 5_000
    first = "another answer came first: step 'ask' was answered by token t1 at 1970-01-01T00:16:40"
    unwanted(world, ref, "no", first, address=address, by="operator")
    world.settle(ref, world.grant(ref, "after"))
    assert world.engine.queries.session(ref.id).status == "completed"
    unwanted(world, ref, "no", first, address=address)


def test_the_same_answer_again_is_no_other_one(world: World) -> None:
    ref = asking(world, ask("ask"), AFTER)
    world.engine.answers.give(ref.id, "yes")
    assert world.engine.answers.give(ref.id, "yes").status == "active"


def test_the_question_that_was_answered_last_is_meant(world: World) -> None:
    ref = asking(world, ask("one"), ask("two"), AFTER)
    world.engine.answers.give(ref.id, "1", by="token t1")
    world.now += 1_000
    put(world, ref, "two")
    world.engine.answers.give(ref.id, "2", by="token t2")
    unwanted(world, ref, "1", "step 'two' was answered by token t2")
    world.engine.answers.give(ref.id, "1", address="one")


def test_a_question_whose_time_is_over_was_answered_by_nobody(world: World) -> None:
    ref = asking(world, ask("ask").model_copy(update={"critical": False}), AFTER)
    world.later(61_000)
    unwanted(world, ref, "yes", "step 'ask' is failed: its deadline passed at 1970")


def test_a_question_that_was_never_answered_is_none(world: World) -> None:
    ref = asking(world, ask("ask"))
    world.engine.control.apply(ref.id, "abort")
    unwanted(world, ref, "yes", "none of its steps waits for a person")
    unwanted(world, ref, "yes", "step 'ask' is cancelled", address="ask")


def test_of_two_who_answer_at_once_one_hears_of_the_other(bench: Bench) -> None:
    world = World.of(bench)
    ref = asking(world, ask("ask"), AFTER)
    store, other = world.engine.store, World.of(bench)
    other.now = world.now

    def late(*given: Any, **more: Any) -> Any:
        store.run = run  # type: ignore[method-assign]
        other.engine.answers.give(ref.id, "yes", by="token t1")
        return run(*given, **more)

    run, store.run = store.run, late  # type: ignore[method-assign]
    unwanted(world, ref, "no", "step 'ask' was answered by token t1", by="operator")
    said = world.engine.store.outcomes(ref)["ask"]
    assert Outcome.model_validate_json(said).text == "yes"


WHO = {"agentType": "a", "identifier": "i"}


@pytest.mark.parametrize(
    ("step", "address", "names"),
    [
        ({"type": "human", "question": "?", "label": "q", **WHO}, "q-ask", ("q", "0")),
        (
            loop({"type": "human", "question": "?", "label": "q"}, label="turns"),
            "turns~1[1]/q",
            ("q", "turns/q", "0/0"),
        ),
    ],
)
def test_a_question_answers_to_its_label_its_address_and_its_place(
    world: World, step: dict[str, Any], address: str, names: tuple[str, ...]
) -> None:
    program = compile_document(flow(step))
    for name in (address, *names):
        id_ = world.engine.submit.program(program, About(kind="flow", name="x")).session
        ref = SessionRef(id_, id_)
        put(world, ref, address)
        waiting = f"steps that wait for a person: {address}"
        unwanted(world, ref, "yes", f"it has no step 'q9'; {waiting}", address="q9")
        unwanted(world, ref, "yes", "it has no step '1'", address="1")
        world.engine.answers.give(ref.id, "yes", address=name)
        unwanted(world, ref, "no", f"step {address!r} was answered by", address=name)


def test_an_answer_is_one_to_the_program_that_the_session_has_now(
    world: World, bench: Bench
) -> None:
    """It took over another one, and whoever takes the answer remembers the old one."""
    ref = asking(world, ask("ask"), AFTER)
    world.engine.control.apply(ref.id, "stop")
    each = Step(id="each", action=Action.AGENT, for_each="${ask.value}")
    drive = Drive(bench, ref, Program(body=(ask("ask"), AFTER)))
    drive.control("resume", adopts=Program(body=(ask("ask"), each)))
    fence = world.engine.store.steps(ref, ["ask"])["ask"].fence
    said = Outcome(word="succeeded", value=["x", "y"])
    assert world.engine.answers.settle(ref, "ask", said, fence=fence, by="me").word == "settled"
    assert drive.live == {"each~1#1", "each~1#2"}
