"""Models as agents: asked in a process of their own, streamed, and ended like any other."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from app.core.outcomes import Busy, Outcome, Thread, Usage
from app.core.program import Action
from leadhand.models.verdicts import ReasonCode
from tests.model_server import (
    Drip,
    Drop,
    Garble,
    Hang,
    ModelServer,
    Refuse,
    Reply,
    Say,
    model_server,
)
from tests.waiting import wait_until
from workers.attempt.actions import BodyTask, run_body
from workers.prompts import VERDICT_QUESTION
from workers.registry.agent_entry import Agent, ChatModel, Prices
from workers.registry.agents import AgentBook


class World:
    """One model, and a step that asks it."""

    def __init__(self, server: ModelServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.spent: list[Usage] = []

    def ask(self, *replies: Reply, cancel: threading.Event | None = None, **given: Any) -> Outcome:
        script = iter(replies)
        self.server.answer = lambda asked: next(script)
        chat = {"name": "small", "base_url": f"{self.server.url}/v1", "key_env": "MODEL_KEY"}
        agent = Agent(
            model=ChatModel.model_validate({**chat, **given.pop("chat", {})}),
            prices=Prices(input_usd=2, output_usd=10),
        )
        task = {
            "session": "ab12cd34",
            "address": "ask~1",
            "action": Action.AGENT,
            "iteration": 1,
            "attempt": 1,
            "inputs": {"task": "How are you?", **given.pop("inputs", {})},
            "cwd": self.folder,
            "spill": self.folder / "spill",
            "timeout_s": 25.0,
            "url": "http://127.0.0.1:1",
            "mint": lambda: "lhc1.x.y",
            "agents": AgentBook(agents={"m": agent}),
            "default_agent": "m",
            "on_spent": self.spent.append,
            **given,
        }
        return run_body(BodyTask(**task), cancel or threading.Event())


@pytest.fixture
def world(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MODEL_KEY", "sk-test-of-the-model")
    with model_server(lambda asked: Say("unasked")) as server:
        yield World(server, tmp_path)


def code_of(outcome: Outcome) -> str | None:
    return outcome.reason.code if outcome.reason else None


def test_a_model_answers_and_its_tokens_cost_what_the_entry_says(world) -> None:
    chat = {"system": "Be brief.", "temperature": 0.5, "max_tokens": 50}
    outcome = world.ask(Say("Well.", 500_000, 100_000), chat=chat)
    assert (outcome.word, outcome.text, outcome.prompt) == ("succeeded", "Well.", "How are you?\n")
    assert outcome.usage == Usage(cost_usd=2.0, input_tokens=500_000, output_tokens=100_000)
    (asked,) = world.server.asked
    assert asked.said == (("system", "Be brief."), ("user", "How are you?\n"))
    assert (asked.model, asked.raw["temperature"], asked.raw["max_tokens"]) == ("small", 0.5, 50)


def test_the_step_names_the_model_where_it_wants_another(world) -> None:
    world.ask(Say("Well."), inputs={"model": "large"})
    assert world.server.asked[0].model == "large"


def test_a_conversation_goes_on_from_what_its_outcomes_keep(world) -> None:
    def earlier(turn: str):
        return [("user", "Hi"), ("assistant", f"Hello, I am {turn}")]

    talk = {"conversation": "m|main", "earlier": earlier}
    first = world.ask(Say("One."), **talk)
    assert first.thread == Thread(conversation="m|main", id="ask~1")
    assert len(world.server.asked[0].said) == 1
    second = world.ask(Say("Two."), **talk, address="more~1", thread=first.thread)
    assert second.thread == Thread(conversation="m|main", id="more~1", after="ask~1")
    assert world.server.asked[1].said == (
        ("user", "Hi"), ("assistant", "Hello, I am ask~1"), ("user", "How are you?\n"),
    )  # fmt: skip


def test_a_long_turn_of_a_conversation_is_kept_whole(world) -> None:
    task, said = "x" * 70_000, "y" * 70_000
    kept = world.ask(Say(said), conversation="m|main", inputs={"task": task})
    assert (kept.prompt, kept.text) == (f"{task}\n", said)
    alone = world.ask(Say(said), inputs={"task": task})
    assert alone.prompt is not None
    assert max(len(alone.prompt), len(alone.text)) <= 64_000


def test_a_turn_that_is_too_long_to_be_kept_is_refused(world) -> None:
    lines = ["x" * 200_000] * 6
    outcome = world.ask(conversation="m|main", inputs={"lines": lines})
    assert (outcome.word, outcome.retryable, world.server.asked) == ("failed", False, [])
    assert outcome.reason is not None
    assert "1,200,006 characters; its conversation stores 1,000,000" in outcome.reason.text


@pytest.mark.parametrize(
    ("reply", "busy", "again", "why"),
    [
        (Refuse(429, "7"), Busy(after_s=7, tries=5), True, "429: .*scripted 429"),
        (Refuse(503, "soon"), Busy(tries=5), True, "503"),
        (Drop("I was about"), Busy(tries=5), True, "broke off after 'I was about'"),
        (Garble(b'{"choices": [{'), Busy(tries=5), True, "broke off after .*: the next chunk"),
        (Garble(b"3"), Busy(tries=5), True, "broke off after 'I was about to': the next chunk"),
        (Garble(b"{}", breaks_off=True), Busy(tries=5), True, "broke off after 'I was about to'"),
        (Garble(b'{"error": {"message": "lost"}}'), Busy(tries=5), True, "broke off.*: lost"),
        (Refuse(401), None, False, "401"),
        (Refuse(404), None, False, "404"),
        (Say(""), None, True, "completion is empty"),
    ],
)
def test_what_a_model_answers_badly_is_told_clearly(world, reply, busy, again, why) -> None:
    outcome = world.ask(reply)
    assert outcome.word == "failed"
    assert outcome.busy == busy
    assert outcome.retryable is again
    assert len(world.server.asked) == 1, "it comes again as a step, and holds no worker meanwhile"
    assert outcome.reason is not None
    assert re.search(why, outcome.reason.text), outcome.reason.text


def test_a_model_that_is_not_there_may_be_there_later(world) -> None:
    outcome = world.ask(chat={"base_url": "http://127.0.0.1:9/v1"})
    assert outcome.busy == Busy(tries=5)
    assert "connection to http://127.0.0.1:9/v1 broke" in outcome.reason.text


def test_a_model_that_hangs_is_left_when_it_was_silent_too_long(world) -> None:
    outcome = world.ask(Hang(), chat={"silence_s": 0.5})
    assert outcome.busy == Busy(tries=5)
    assert "it sent nothing for 0.5 seconds" in outcome.reason.text


def test_a_model_that_hangs_is_left_at_the_deadline(world) -> None:
    outcome = world.ask(Hang(), timeout_s=1.0)
    assert code_of(outcome) is ReasonCode.TIMEOUT


def test_a_model_is_left_in_the_middle_of_its_answer_when_the_step_is_cancelled(world) -> None:
    cancel = threading.Event()
    came: list[Outcome] = []
    step = threading.Thread(target=lambda: came.append(world.ask(Drip(), cancel=cancel)))
    step.start()
    wait_until(lambda: any(usage.output_tokens for usage in world.spent), timeout=20)
    cancel.set()
    step.join(20)
    assert code_of(came[0]) is ReasonCode.CANCELLED
    assert world.server.left.wait(20)
    assert came[0].usage is not None, "what it had said by then is counted, about"


def test_a_key_that_is_not_set_is_named_before_anybody_is_asked(world, monkeypatch) -> None:
    monkeypatch.delenv("MODEL_KEY")
    outcome = world.ask(Say("never"))
    assert outcome.word == "failed"
    assert "the variable MODEL_KEY is not set" in outcome.reason.text
    assert world.server.asked == []


def test_a_checker_that_is_busy_comes_again_and_judges_nothing(world) -> None:
    checker = {"checker": {"agent": "m", "prompt": "Is it good?"}}
    outcome = world.ask(Refuse(429), action=Action.CHECK, inputs=checker)
    assert (outcome.word, outcome.verdict, outcome.busy) == ("failed", None, Busy(tries=5))
    outcome = world.ask(Say("Fine.\nACCEPT"), action=Action.CHECK, inputs=checker)
    assert (outcome.word, outcome.verdict) == ("succeeded", "accept")


def test_model_that_judges_unclearly_is_asked_once_more_with_its_answer(world) -> None:
    checker = {"checker": {"agent": "m", "prompt": "Is it good?"}}
    said = (Say("Looks good. ACCEPT", 1_000, 100), Say("ACCEPT", 2_000, 10))
    outcome = world.ask(*said, action=Action.CHECK, inputs=checker)
    assert (outcome.verdict, outcome.decided_by) == ("accept", "line")
    first, second = (asked.said for asked in world.server.asked)
    assert second == (*first, ("assistant", "Looks good. ACCEPT"), ("user", VERDICT_QUESTION))
    assert outcome.usage.input_tokens == 3_000
    assert world.spent[-1] == outcome.usage, "the running total includes the first answer"
