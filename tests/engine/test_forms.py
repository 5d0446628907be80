"""Questions with forms, choices and defaults: an answer fits, or the step keeps waiting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.compiler import compile_document
from app.core.addresses import SessionRef
from app.errors import AnswerUnfit
from app.sessions.questions import list_questions_of_tree
from app.sessions.submit import About
from leadhand.errors import AnswerUnwanted
from leadhand.flows.documents import FlowDefinition
from leadhand.flows.faults import all_faults
from leadhand.models.forms import GivenAnswer
from tests.engine.driving import Bench
from tests.engine.world import World
from tests.flows import flow
from workers.attempt.settle import park

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "severity": {"type": "string", "enum": ["low", "high"]},
        "count": {"type": "integer", "minimum": 1, "default": 2},
    },
    "required": ["severity"],
}
HUMAN: dict[str, Any] = {
    "type": "human",
    "label": "ask",
    "question": "How bad?",
    "timeoutSeconds": 60,
}
CHOICES: dict[str, Any] = {"choices": ["ship", "wait"]}


@pytest.fixture
def world(bench: Bench) -> World:
    return World.of(bench)


def asking(world: World, **more: Any) -> SessionRef:
    """A session that has asked, and has an echo of the answer after it."""
    echo = {"type": "tool", "tool": "echo", "arguments": {"got": "${steps.ask}"}, "label": "echo"}
    program = compile_document(flow({**HUMAN, **more}, echo))
    id_ = world.engine.submit.program(program, About(kind="flow", name="x")).session
    ref = SessionRef(id_, id_)
    assert park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "ask"))) is None
    return ref


def unfit(world: World, ref: SessionRef, **given: Any) -> list[str]:
    with pytest.raises(AnswerUnfit) as refused:
        world.engine.answers.give(ref.id, GivenAnswer(**given), by="token t1")
    return [one.field for one in refused.value.problem.errors]


def outcome(world: World, ref: SessionRef) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.engine.store.outcomes(ref)["ask"])
    return found


def answered_by(world: World, ref: SessionRef) -> str | None:
    steps = world.engine.queries.steps(ref.id, limit=50, cursor=None).items
    return next(step.answered_by for step in steps if step.address == "ask")


def test_an_answer_that_does_not_fit_leaves_the_step_waiting(bench: Bench) -> None:
    world = World.of(bench)
    ref = asking(world, form=FORM)
    before = world.engine.store.steps(ref, ["ask"])["ask"]
    assert unfit(world, ref, fields={"severity": "middle", "count": 0}) == [
        "fields.severity",
        "fields.count",
    ]
    assert unfit(world, ref, text="bad") == ["text", "fields.severity"]
    assert world.engine.store.steps(ref, ["ask"])["ask"] == before
    [view] = list_questions_of_tree(world.engine, ref.id, limit=50).items
    assert (view.form, view.choices, view.default) == (FORM, [], None)
    assert view.answer == f"leadhand answer {ref.id} ask --field severity=VALUE"


def test_an_answer_that_fits_is_the_step_s_value_with_who_gave_it(world: World) -> None:
    ref = asking(world, form=FORM)
    given = GivenAnswer(fields={"severity": "high"})
    world.engine.answers.give(ref.id, given, by="token t1")
    found = outcome(world, ref)
    assert found["value"] == {"fields": {"severity": "high", "count": 2}}
    assert found["text"] == "severity: high\ncount: 2"
    assert answered_by(world, ref) == "token t1"
    work = world.engine.attempts.work(ref, world.grant(ref, "echo"))
    assert work.inputs["arguments"] == {"got": "severity: high\ncount: 2"}
    # The same answer again changes nothing, another one is late.
    world.engine.answers.give(ref.id, given, by="token t2")
    with pytest.raises(AnswerUnwanted, match="answered by token t1"):
        world.engine.answers.give(ref.id, GivenAnswer(fields={"severity": "low"}))
    with pytest.raises(AnswerUnwanted, match="answered by token t1"):
        world.engine.answers.give(ref.id, GivenAnswer(fields={"severity": "middle"}))


def test_a_choice_may_be_given_as_a_text(world: World) -> None:
    ref = asking(world, **CHOICES)
    assert unfit(world, ref, text="no") == ["text"]
    world.engine.answers.give(ref.id, "ship")
    assert outcome(world, ref)["value"] == {"choice": "ship"}


@pytest.mark.parametrize(
    ("more", "text", "value"),
    [
        ({"default": "go on"}, "go on", None),
        ({**CHOICES, "default": "wait"}, "wait", {"choice": "wait"}),
        ({**CHOICES, "default": {"choice": "wait"}}, "wait", {"choice": "wait"}),
        (
            {"form": FORM, "default": {"fields": {"severity": "low"}}},
            "severity: low\ncount: 2",
            {"fields": {"severity": "low", "count": 2}},
        ),
    ],
)
def test_the_deadline_gives_the_default_as_the_answer(
    world: World, more: dict[str, Any], text: str, value: Any
) -> None:
    ref = asking(world, **more)
    world.later(59_000)
    assert answered_by(world, ref) is None
    world.later(2_000)
    found = outcome(world, ref)
    assert (found["word"], found["text"], found.get("value")) == ("succeeded", text, value)
    assert answered_by(world, ref) == "deadline"
    entries = world.engine.queries.transcript(ref.id).items
    [entry] = [entry for entry in entries if entry.role == "human"]
    assert entry.text == text
    with pytest.raises(AnswerUnwanted, match="its deadline passed"):
        world.engine.answers.give(ref.id, "something else")
    world.grant(ref, "echo")


def test_without_a_default_the_deadline_fails_the_step(world: World) -> None:
    ref = asking(world, form=FORM)
    world.later(61_000)
    assert world.engine.queries.session(ref.id).status == "failed"
    assert answered_by(world, ref) == "deadline"


def test_a_default_that_nobody_delivered_is_delivered_by_a_later_sweep(bench: Bench) -> None:
    """The process that swept died between the two calls."""
    world = World.of(bench)
    ref = asking(world, **CHOICES, default="wait")
    world.now += 61_000
    answer = world.engine.transitions.run("expire", ref, {"address": "ask", "jitter": 1})
    assert (answer.word, answer.fence) == ("default", world.engine.answers.questions(ref)["ask"])
    assert "ask" not in world.engine.store.outcomes(ref)
    assert world.engine.transitions.run("expire", ref, {"address": "ask"}).word == "default"
    assert world.engine.store.due(every_ms=0, limit=9, grace_ms=0).leases == ()
    world.later(61_000)
    assert answered_by(world, ref) == "deadline"


def test_the_default_of_a_stopped_session_is_given_and_releases_nothing(world: World) -> None:
    ref = asking(world, **CHOICES, default="wait")
    world.engine.control.apply(ref.id, "stop")
    world.later(61_000)
    assert answered_by(world, ref) == "deadline"
    assert world.engine.queries.session(ref.id).status == "stopped"
    assert world.claim(ref, "echo").word == "refused"
    world.engine.control.apply(ref.id, "resume")
    world.grant(ref, "echo")


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({**CHOICES, "default": "no"}, "default.text"),
        ({"form": FORM, "default": {"fields": {"severity": 1}}}, "default.fields.severity"),
        ({"default": {"choice": "ship"}}, "default.choice"),
    ],
)
def test_a_default_that_does_not_fit_its_question_is_refused(
    more: dict[str, Any], path: str
) -> None:
    found = all_faults(FlowDefinition, {"steps": [{**HUMAN, **more}]}).faults
    assert [where for where, _ in found] == [f"steps[0].{path}"]
