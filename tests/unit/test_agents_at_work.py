"""Agents as processes that tell of themselves: conversations, cost and tokens, while they run."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from app.outcomes import Busy, Outcome, Thread, Usage
from app.program import Action
from app.reasons import ReasonCode
from workers.agents.book import AgentBook
from workers.agents.entries import Agent, Told
from workers.body import BodyTask, run_body

#: Says how it was started and what it was told, and that it cost 0.5 dollars.
TALKER = """
import json, sys
print(json.dumps({"says": sys.argv[1:], "id": "t7", "usd": 0.5, "in": 30, "out": 4}))
"""
#: Tells every so often what it has cost by now, for ever.
SPENDER = """
import itertools, json, time
for dollars in itertools.count(1):
    print(json.dumps({"usd": dollars}), flush=True)
    time.sleep(0.02)
"""

FUNCTION = """
import os

def speak(prompt, thread, role, model):
    return {"text": f"{prompt.strip()} as {role} with {model} and {os.environ['MY_KEY']}",
            "thread": str(int(thread) + 1), "cost_usd": 0.25, "input_tokens": 7}
"""


def agent(code: str, **given: Any) -> Agent:
    return Agent(
        command=(sys.executable, "-c", code),
        resume_args=("--on", "{thread}"),
        output="lines",
        answer="says",
        thread="id",
        usage=Told(cost_usd=("usd",), input_tokens=("in",), output_tokens=("out",), **given),
    )


@pytest.fixture
def body(tmp_path: Path):
    def run(action: Action, inputs: dict[str, Any], cancel=None, **given: Any) -> Outcome:
        agents = {
            "talker": agent(TALKER),
            "spender": agent(SPENDER),
            "function": Agent(callable="mine:speak", needs_env=("MY_KEY",)),
        }
        given = {
            "agents": AgentBook(agents=agents),
            "cwd": tmp_path,
            "spill": tmp_path / "spill",
            **given,
        }
        task = BodyTask(
            session="ab12cd34",
            address="do~1",
            action=action,
            iteration=1,
            attempt=1,
            inputs=inputs,
            timeout_s=20.0,
            url="http://127.0.0.1:1",
            mint=lambda: "lhc1.x.y",
            default_agent="talker",
            **given,
        )
        return run_body(task, cancel or threading.Event())

    return run


def test_an_outcome_tells_prompt_cost_tokens_and_conversation(body) -> None:
    outcome = body(Action.AGENT, {"task": "Greet."}, conversation="talker|main")
    assert json.loads(outcome.text) == []
    assert outcome.prompt == "Greet.\n"
    assert outcome.usage == Usage(cost_usd=0.5, input_tokens=30, output_tokens=4)
    assert outcome.thread == Thread(conversation="talker|main", id="t7")


def test_it_goes_on_where_the_conversation_was(body) -> None:
    before = Thread(conversation="talker|main", id="t3")
    outcome = body(Action.AGENT, {"task": "Go on."}, conversation="talker|main", thread=before)
    assert json.loads(outcome.text) == ["--on", "t3"]


def test_a_conversation_without_a_folder_has_one_for_all_its_turns(body, tmp_path) -> None:
    where = Agent(command=("pwd",))
    given = {"agents": AgentBook(agents={"talker": where}), "cwd": None}
    talk = [
        body(
            Action.AGENT,
            {"task": "x"},
            **given,
            conversation="talker|main",
            spill=tmp_path / "session" / turn,
        ).text
        for turn in ("one", "two")
    ]
    assert talk[0] == talk[1]
    alone = body(Action.AGENT, {"task": "x"}, **given, spill=tmp_path / "session" / "three").text
    assert alone not in talk


def test_a_step_without_a_conversation_leaves_none_behind(body) -> None:
    assert body(Action.AGENT, {"task": "Greet."}).thread is None


def test_a_python_function_is_an_agent(body, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MY_KEY", "mine")
    (tmp_path / "mine.py").write_text(FUNCTION)
    doer = {"agent": "function"}
    given = {"task": "Greet.", "doer": doer, "model": "large"}
    before = Thread(conversation="function|x", id="3")
    outcome = body(Action.AGENT, given, conversation="function|x", thread=before)
    assert outcome.text == "Greet. as doer with large and mine"
    assert outcome.thread == Thread(conversation="function|x", id="4")
    assert outcome.usage == Usage(cost_usd=0.25, input_tokens=7)


@pytest.mark.parametrize(
    ("says", "again"),
    [('{"why": "lost"}', True), ('{"why": "no key", "code": 401}', False), ("{}", True)],
)
def test_an_agent_that_failed_is_tried_again_unless_it_says_that_it_is_of_no_use(
    body, says, again
) -> None:
    given = {"command": ["echo", says], "output": "json", "answer": "x", "failed": "why"}
    agents = AgentBook(agents={"talker": Agent.model_validate({**given, "final": "[code=401]"})})
    outcome = body(Action.AGENT, {"task": "Greet."}, agents=agents)
    assert (outcome.word, outcome.retryable) == ("failed", again)
    asked = {"question": "Is it so?", "agent": "talker"}
    outcome = body(Action.BREAK, asked, agents=agents)
    assert (outcome.word, outcome.retryable) == ("failed", again)


def test_a_function_that_is_not_there_is_not_tried_again(body, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MY_KEY", "x")
    outcome = body(Action.AGENT, {"task": "Greet.", "doer": {"agent": "function"}})
    assert (outcome.word, outcome.retryable) == ("failed", False)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("return 3", "neither text nor a dict but 3"),
        ("raise ValueError('no')", "raised: Traceback"),
        ("import os; os._exit(0)", "ended its process before it returned"),
    ],
)
def test_a_function_that_does_not_answer_has_failed(body, tmp_path, monkeypatch, says, why) -> None:
    monkeypatch.setenv("MY_KEY", "x")
    (tmp_path / "mine.py").write_text(f"def speak(prompt):\n    {says}\n")
    outcome = body(Action.AGENT, {"task": "Greet.", "doer": {"agent": "function"}})
    assert (outcome.word, outcome.retryable) == ("failed", True)
    assert why in outcome.reason.text


def test_what_agents_are_handed_never_comes_back(body, tmp_path, monkeypatch) -> None:
    secret, form = "quite-a-secret", "sk-ant-0123456789abcdef"
    monkeypatch.setenv("MY_KEY", secret)
    says = {"text": f"it is {secret}", "value": [secret, {form: form}], "verdict": "terminate"}
    (tmp_path / "mine.py").write_text(
        f"import os\ndef speak(task):\n    return {says!r}\n"
        "def fails(task):\n    raise ValueError(os.environ['LEADHAND_TOKEN'])\n"
    )
    asked = {"task": f"Use {secret}.", "doer": {"callable": "mine:speak"}}
    for outcome in (
        body(Action.AGENT, asked),
        body(Action.AGENT, {**asked, "doer": {"agent": "talker"}}),
        body(Action.AGENT, {**asked, "doer": {"callable": "mine:fails"}}),
        body(Action.AGENT, {**asked, "doer": {"command": f"echo {secret} {form}; exit 3"}}),
    ):
        told = outcome.model_dump_json()
        assert "[redacted]" in told
        for hidden in (secret, form, "lhc1.x.y"):
            assert hidden not in told


def test_a_variable_that_an_agent_needs_is_named(body) -> None:
    outcome = body(Action.AGENT, {"task": "Greet.", "doer": {"agent": "function"}})
    assert "agent 'function' cannot be used here: the variable MY_KEY" in outcome.reason.text


def test_an_agent_that_says_it_is_busy_comes_again_later(body, tmp_path) -> None:
    says = '{"code": 429, "wait": 12, "why": "overloaded"}'
    busy = {"output": "json", "answer": "x", "failed": "why", "busy": "[code=429]"}
    entry = Agent.model_validate(
        {"command": ["echo", says], "retry_after_s": "wait", "busy_tries": 2, **busy}
    )
    agents = AgentBook(agents={"talker": entry})
    outcome = body(Action.AGENT, {"task": "Greet."}, agents=agents)
    assert (outcome.busy, outcome.retryable) == (Busy(after_s=12, tries=2), True)
    assert outcome.reason.text == "agent 'talker' failed: overloaded"


def test_a_checker_costs_too_and_what_it_was_told_is_kept(body) -> None:
    outcome = body(Action.CHECK, {"checker": {"agent": "talker", "prompt": "Is it good?"}})
    assert outcome.verdict == "retry"
    assert outcome.usage == Usage(cost_usd=0.5, input_tokens=30, output_tokens=4)
    assert "Is it good?" in outcome.prompt


def test_what_it_costs_is_heard_while_it_works_and_it_can_be_ended_for_it(body) -> None:
    cancel = threading.Event()

    def cap(spent: Usage) -> None:
        if spent.cost_micros >= 5_000_000:
            cancel.set()

    doer = {"agent": "spender"}
    outcome = body(Action.AGENT, {"task": "Spend.", "doer": doer}, cancel, on_spent=cap)
    assert outcome.reason is not None
    assert outcome.reason.code is ReasonCode.CANCELLED
    assert outcome.usage is not None
    assert (outcome.usage.cost_usd or 0) >= 5, "what it told until its end is counted"
    assert outcome.thread is None
