"""Outcomes that cannot be kept as they are, and what breaks in an attempt: no step is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Thread
from app.core.program import Action, Origin, Program, RetryPolicy, Step
from app.sessions.submit import About
from leadhand.models.verdicts import Reason, ReasonCode
from tests.engine.world import World
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.attempt.settle import park
from workers.registry.agent_entry import Agent, UsagePaths
from workers.registry.agents import AgentBook

KEY = "sk-ant-of-nobody-0123456789abcdef"
HALF = "half a \ud83d"
CODE = """
def work(context):
    return "half a \\ud83d"

def check(context):
    return {"accepted": False, "feedback": "half a \\ud83d"}
"""
TALKER = "import json; print(json.dumps({'says': 'it is done', 'usd': 0.5, 'in': 30, 'out': 4}))"
NOBODY = AgentBook.load([])


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def begun(world: World, *body: Step, **about: Any) -> SessionRef:
    id_ = world.engine.submit.program(
        Program(body=body), About(kind="loop", name="x", **about)
    ).session
    return SessionRef(id_, id_)


def carry_out(
    world: World, ref: SessionRef, address: str, agents: Callable[[], AgentBook] = lambda: NOBODY
) -> None:
    """What a worker does with a hint."""
    attempts = Attempts(world.engine, worker="w", agents=agents, heart=Heartbeats(world.engine))
    try:
        attempts(ref, address)
    finally:
        attempts.close()


def doer_that_fails(**more: Any) -> Step:
    return Step(id="do", action=Action.AGENT, retry=RetryPolicy(retries=2, backoff_s=0), **more)


def failed(why: str, text: str = "") -> Outcome:
    reason = Reason(code=ReasonCode.FAILED_STEP, text=why)
    return Outcome(word="failed", reason=reason, text=text)


def test_the_next_attempt_of_a_doer_gets_the_end_of_the_one_before(world: World):
    ref = begun(world, doer_that_fails())
    first = world.grant(ref, "do")
    assert first.ending is None
    why = "doer exited with code 3: no room\nfor it"
    world.settle(ref, first, failed(why, f"line 1\nkey {KEY} {HALF}"))
    world.later(500)
    second = world.grant(ref, "do")
    assert second.failure == "doer exited with code 3: no room"
    assert second.ending is not None
    assert second.ending.startswith(f"{why}\n\nIts output ended with:\nline 1\nkey")
    assert KEY not in second.ending
    world.later(31_000)
    assert world.grant(ref, "do").ending == second.ending, "a lost attempt has no end of its own"


def test_the_end_of_an_attempt_is_not_stored_beyond_the_step(world: World):
    ref = begun(world, doer_that_fails(), Step(id="next", action=Action.AGENT))
    world.settle(ref, world.grant(ref, "do"), failed("doer exited with code 3"))
    world.later(500)
    world.settle(ref, world.grant(ref, "do"))
    assert "ending" not in world.engine.store.values(ref, "steps", ["do"])["do"]
    assert world.grant(ref, "next").ending is None


def test_a_step_of_a_flow_is_told_the_first_line_alone(world: World):
    origin = Origin(path="steps[0]", kind="llm", index=1, total=1)
    ref = begun(world, doer_that_fails(origin=origin))
    world.settle(ref, world.grant(ref, "do"), failed("first\nsecond"))
    world.later(500)
    again = world.grant(ref, "do")
    assert (again.failure, again.ending) == ("first", None)


def test_a_warning_of_an_outcome_is_one_of_its_session(world: World):
    ref = begun(world, Step(id="do", action=Action.AGENT), Step(id="next", action=Action.AGENT))
    grant = world.grant(ref, "do")
    warned = Outcome(word="succeeded", warning="its conversation is gone")
    for _ in range(2):  # a repeated settle warns once
        world.settle(ref, grant, warned)
    assert world.engine.queries.session(ref.id).warnings == ["its conversation is gone"]


def test_half_a_surrogate_pair_anywhere_in_an_outcome_is_a_question_mark(world: World):
    ref = begun(world, Step(id="a", action=Action.AGENT, conversation="x|y"))
    said = Outcome(
        word="succeeded",
        text=HALF,
        value={HALF: [HALF, 1, None]},
        prompt=HALF,
        reason=Reason(code=ReasonCode.DONE, beneath=Reason(code=ReasonCode.DONE, text=HALF)),
        thread=Thread(conversation="x|y", id=HALF),
    )
    assert world.settle(ref, world.grant(ref, "a"), said).word == "settled"
    kept = Outcome.model_validate_json(world.engine.store.values(ref, "out", ["a"])["a"])
    assert (kept.text, kept.prompt, kept.value) == (
        "half a ?", "half a ?", {"half a ?": ["half a ?", 1, None]},
    )  # fmt: skip
    assert kept.reason is not None
    assert kept.reason.root.text == "half a ?"
    assert kept.thread is not None
    assert kept.thread.id == "half a ?"


@pytest.mark.parametrize(
    ("action", "inputs", "state"),
    [
        (Action.AGENT, {"task": "t", "doer": {"callable": "odd:work"}}, "failed"),
        (Action.CHECK, {"checker": {"callable": "odd:check"}}, "succeeded"),
    ],
)
def test_a_function_that_gives_half_a_surrogate_pair_is_called_once(
    world: World, tmp_path: Path, action: Action, inputs: dict[str, JsonValue], state: str
):
    """The result of a doer is refused; the text of a verdict has a question mark instead."""
    step = Step(id="a", action=action, inputs=inputs)
    (tmp_path / "odd.py").write_text(CODE)
    ref = begun(world, step, cwd=str(tmp_path))
    carry_out(world, ref, "a")
    [line] = world.engine.queries.steps(ref.id).items
    assert (line.state, line.attempt) == (state, 1)


def test_a_number_that_is_none_is_null_to_those_who_work_on_it(world: World):
    first = Step(id="a", action=Action.TOOL)
    ask = Step(id="ask", action=Action.HUMAN, for_each="${a.value}", inputs={"question": "${item}"})
    ref = begun(world, first, ask)
    said = Outcome(word="succeeded", value=[float("nan"), {"x": float("inf")}])
    (grant,) = world.settle(ref, world.grant(ref, "a"), said).grants
    for held, item in ((grant, None), (world.grant(ref, "ask~1#2"), {"x": None})):
        work = world.engine.attempts.work(ref, held)
        assert work.inputs["question"] == item
        assert park(world.engine, work) is None
    assert world.engine.queries.session(ref.id).status == "waiting"


def test_what_breaks_between_the_body_and_its_outcome_fails_the_step_and_counts(
    world: World, tmp_path: Path
):
    told = UsagePaths(cost_usd=("usd",), input_tokens=("in",), output_tokens=("out",))
    talker = Agent(
        command=(sys.executable, "-c", TALKER), output="lines", answer="says", usage=told
    )
    books = iter([AgentBook(agents={"talker": talker})])
    ref = begun(
        world,
        Step(id="a", action=Action.AGENT, inputs={"task": "t", "doer": {"agent": "talker"}}),
        cwd=str(tmp_path),
    )
    carry_out(world, ref, "a", lambda: next(books))
    view = world.engine.queries.session(ref.id)
    assert view.status == "failed"
    assert view.reason is not None
    assert view.reason.root.text == "internal error: StopIteration: "
    assert (view.counters.attempts_failed, view.counters.attempts_lost) == (1, 0)
    assert (view.counters.cost_usd, view.counters.input_tokens) == (0.5, 30)


def test_what_breaks_before_the_body_fails_the_step(world: World):
    books = iter(())
    ref = begun(world, Step(id="a", action=Action.AGENT, inputs={"task": "t"}))
    carry_out(world, ref, "a", lambda: next(books))
    view = world.engine.queries.session(ref.id)
    assert view.status == "failed"
    assert view.counters.attempts_lost == 0


def test_a_question_that_no_script_can_write_fails_its_step(world: World):
    ask = Step(id="a", action=Action.HUMAN, inputs={"question": 10**400})
    ref = begun(world, ask)
    carry_out(world, ref, "a")
    view = world.engine.queries.session(ref.id)
    assert (view.status, view.counters.attempts_lost) == ("failed", 0)
