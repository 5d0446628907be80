"""Agents as processes that tell of themselves: conversations, cost and tokens, while they run."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from app.core.outcomes import Busy, Outcome, Thread, Usage
from app.core.program import Action
from leadhand.models.verdicts import ReasonCode
from workers.attempt.actions import BodyTask, run_body
from workers.registry.agent_entry import Agent, UsagePaths
from workers.registry.agents import AgentBook

#: Prints its arguments and its prompt, and reports a cost of 0.5 dollars.
TALKER = """
import json, sys
print(json.dumps({"says": sys.argv[1:], "id": "t7", "usd": 0.5, "in": 30, "out": 4}))
"""
#: Reports its cost at intervals, and never ends.
SPENDER = """
import itertools, json, time
for dollars in itertools.count(1):
    print(json.dumps({"usd": dollars}), flush=True)
    time.sleep(0.02)
"""

#: Answers with its arguments and with the file that configures the MCP server.
CONFIGURED = """
import json, os, sys
config = sys.argv[-1]
text = open(config).read()
told = {"argv": sys.argv[1:], "mode": os.stat(config).st_mode & 0o777, "file": text,
        "leaked": os.environ["LEADHAND_TOKEN"] in text + "".join(sys.argv)}
print(json.dumps({"says": json.dumps(told), "id": "t7", "usd": 0.5, "in": 30, "out": 4}))
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
        usage=UsagePaths(cost_usd=("usd",), input_tokens=("in",), output_tokens=("out",), **given),
    )


@pytest.fixture
def body(tmp_path: Path):
    def run(action: Action, inputs: dict[str, Any], cancel=None, **given: Any) -> Outcome:
        agents = {
            "talker": agent(TALKER),
            "spender": agent(SPENDER),
            "configured": agent(CONFIGURED).model_copy(
                update={"doer_args": ("{mcp_args}", "{mcp_config}")}
            ),
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


#: Calls tools, whose results come with the exit codes that it gets as arguments.
CALLER = """
import json, sys
for code in map(int, sys.argv[1:]):
    print(json.dumps({"tool": "run", "input": {"command": f"exit {code}"}}))
    print(json.dumps({"result": "it ran", "failed": code}))
print(json.dumps({"says": "All is well."}))
"""


@pytest.mark.parametrize(
    ("codes", "warning"),
    [
        ("", None),
        ("0", None),
        ("1 0 1", None),
        ("1", "agent 'caller': its only tool call failed"),
        ("1 2", "agent 'caller': all of its 2 tool calls failed"),
    ],
)
def test_an_outcome_has_the_tool_calls_and_a_warning_if_all_of_them_failed(
    body, codes, warning
) -> None:
    paths = {"tool": "tool", "input": "input", "result": "result", "failed": "failed"}
    caller = Agent.model_validate(
        {
            "command": (sys.executable, "-c", CALLER, *codes.split()),
            "output": "lines", "answer": "says", "activity": paths,
        }
    )  # fmt: skip
    inputs = {"task": "Try.", "doer": {"agent": "caller"}}
    outcome = body(Action.AGENT, inputs, agents=AgentBook(agents={"caller": caller}))
    assert (outcome.word, outcome.text, outcome.warning) == ("succeeded", "All is well.", warning)
    assert [(call.name, call.input, call.failed) for call in outcome.tools or ()] == [
        ("run", f"exit {code}", code != "0") for code in codes.split()
    ]
    assert outcome.tools_failed == (len(codes.split()) if warning else None)
    assert outcome.model_dump_json(exclude_none=True).count("tools") == bool(codes) + bool(warning)


def test_it_goes_on_where_the_conversation_was(body) -> None:
    before = Thread(conversation="talker|main", id="t3")
    outcome = body(Action.AGENT, {"task": "Go on."}, conversation="talker|main", thread=before)
    assert json.loads(outcome.text) == ["--on", "t3"]


#: Has lost each conversation but t7.
FORGETFUL = """
import json, sys
if "--on" in sys.argv and sys.argv[-1] != "t7":
    print("there is no thread", sys.argv[-1], file=sys.stderr)
    sys.exit(4)
prompt = sys.stdin.read()
print(json.dumps({"says": prompt, "id": "t7", "usd": 3.0, "in": 30, "out": 4}))
"""
LOOP = {
    "task": "Write it.",
    "continues": True,
    "iteration": 2,
    "max_iterations": 3,
    "previous": {"work": "a line", "feedback": "too short"},
}
CONTINUED = """# Previous Attempt

Iteration 1 of 3 was not accepted. Fix what the checker names, and keep what was good.

## Checker Feedback

too short"""


def forgetful(**more: Any) -> dict[str, AgentBook]:
    told = agent(FORGETFUL, of="conversation").model_copy(update=more)
    return {"agents": AgentBook(agents={"talker": told})}


def test_a_loop_that_continues_tells_its_agent_the_feedback_alone(body) -> None:
    before = Thread(conversation="x", id="t7", told=Usage(cost_usd=2, input_tokens=20))
    given = {**forgetful(), "conversation": "x", "thread": before}
    outcome = body(Action.AGENT, LOOP, **given)
    assert (outcome.word, outcome.text, outcome.warning) == ("succeeded", CONTINUED, None)
    assert outcome.prompt == f"{CONTINUED}\n"
    assert outcome.usage == Usage(cost_usd=1, input_tokens=10, output_tokens=4)
    retried = body(Action.AGENT, LOOP, **given, ending="exited with code 9", failure="code 9")
    assert retried.text.startswith(CONTINUED)
    assert retried.text.endswith("exited with code 9")
    assert "Previous Error" not in retried.text


@pytest.mark.parametrize("thread", [None, "t3"])
def test_a_loop_without_its_thread_begins_a_new_conversation(body, thread) -> None:
    told = Usage(cost_usd=2, input_tokens=20)
    before = Thread(conversation="x", id=thread, told=told) if thread else None
    given = {"conversation": "x", "thread": before}
    outcome = body(Action.AGENT, LOOP, **forgetful(thread_gone=("no thread",)), **given)
    assert outcome.word == "succeeded"
    assert outcome.text.startswith("Write it.\n\n# Previous Attempt")
    assert "## Previous Summary\n\na line" in outcome.text
    assert outcome.thread is not None
    assert (outcome.thread.id, outcome.usage.input_tokens) == ("t7", 30)
    assert outcome.warning == (
        None
        if thread is None
        else "agent 'talker' no longer has the conversation of the loop:"
        " iteration 2 began a new one with the whole task"
    )


def test_a_failure_that_is_no_lost_thread_begins_no_new_conversation(body) -> None:
    before = Thread(conversation="x", id="t3")
    outcome = body(Action.AGENT, LOOP, **forgetful(), conversation="x", thread=before)
    assert (outcome.word, outcome.warning) == ("failed", None)
    assert outcome.thread is None


#: Prints the model that it was started with.
MODEL = """
import json, sys
print(json.dumps({"says": " ".join(sys.argv[1:]) + "\\nRETRY", "id": "t"}))
"""


@pytest.mark.parametrize(
    ("command", "takes", "own", "asked"),
    [
        ("judge", True, None, "--model big\nRETRY"),
        ("judge", True, "small", "--model small\nRETRY"),
        ("judge", False, None, "RETRY"),
        ("codex", True, None, "RETRY"),
        ("claude", True, None, "--model big\nRETRY"),
    ],
)
def test_an_agent_that_a_checker_names_is_asked_for_the_doer_s_model(
    body, tmp_path, command, takes, own, asked
) -> None:
    for name in ("claude", "codex", "judge"):
        program = tmp_path / name
        program.write_text(f"#!{sys.executable}\n{MODEL}")
        program.chmod(0o755)
    flags = ("--model", "{model}")
    doer = agent("pass").model_copy(update={"command": (str(tmp_path / "claude"),)})
    judge = doer.model_copy(
        update={"command": (str(tmp_path / command),), "model_args": flags if takes else ()}
    )
    given = {
        "checker": {"prompt": "Good?", "agent": "judge", "model": own},
        "doer": {"agent": "worker"},
        "doer_model": "big",
    }
    book = AgentBook(agents={"worker": doer, "judge": judge})
    assert body(Action.CHECK, given, agents=book).text == asked


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


def test_program_that_waits_for_its_model_without_end_is_ended_and_busy(body) -> None:
    waits = """for n in 1 2 3; do echo '{"waits": "no network"}'; done; exec sleep 300"""
    given = {"command": ["sh", "-c", waits], "output": "lines", "answer": "x", "waits": "waits"}
    agents = AgentBook(agents={"talker": Agent.model_validate(given)})
    outcome = body(Action.AGENT, {"task": "Greet."}, agents=agents)
    assert (outcome.word, outcome.retryable) == ("failed", True)
    assert outcome.busy == Busy(tries=5)
    assert "no network" in outcome.reason.text


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
    twice = Usage(cost_usd=1.0, input_tokens=60, output_tokens=8)
    assert outcome.usage == twice, "it gave no verdict, and was asked once more"
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


def test_an_agent_gets_the_mcp_server_with_the_token_in_the_environment_alone(
    body, tmp_path: Path
) -> None:
    outcome = body(Action.AGENT, {"task": "hi", "doer": {"agent": "configured"}})
    assert outcome.word == "succeeded", outcome
    told = json.loads(outcome.text)
    *codex, config = told["argv"]
    assert codex[0] == "-c"
    assert codex[1].startswith("mcp_servers.leadhand.")
    assert (told["leaked"], told["mode"]) == (False, 0o600)
    assert json.loads(told["file"])["mcpServers"]["leadhand"]["args"][-1] == "mcp"
    assert Path(config).parent == tmp_path / "spill"
    assert not Path(config).exists(), "it is deleted with the attempt"
