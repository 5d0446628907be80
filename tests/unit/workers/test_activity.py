"""Texts, tool calls, retries and rate limits in the events of agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.outcomes import Outcome
from app.core.program import Action
from leadhand.models.views.step import ToolCallView
from workers.agents.activity import CALLS, ActivityLog, AgentText, Notice, ToolEnded, ToolStarted
from workers.agents.output_parser import OutputParser, read_activity
from workers.attempt.outcomes import redact_outcome
from workers.live_output import LiveOutput
from workers.registry.agent_entry import ActivityPaths, Agent
from workers.registry.agents import AgentBook
from workers.task import BodyTask


def blocks(kind: str, *content: object) -> dict[str, Any]:
    return {"type": kind, "message": {"content": list(content)}, "session_id": "s"}


def use(id_: str, name: str, **given: object) -> dict[str, Any]:
    return blocks("assistant", {"type": "tool_use", "id": id_, "name": name, "input": given})


def result(id_: str, content: object, **more: object) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id_, "content": content}
    return blocks("user", {**block, **more})


def item(kind: str, when: str = "completed", **fields: object) -> dict[str, Any]:
    return {"type": f"item.{when}", "item": {"id": "item_1", "type": kind, **fields}}


RETRY = {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 2,
         "retry_delay_ms": 539.9, "error_status": 529, "error": "overloaded"}  # fmt: skip
LIMIT = {"status": "allowed_warning", "rateLimitType": "five_hour", "resetsAt": 1_800_000_000}

CLAUDE = [
    (blocks("assistant", {"type": "text", "text": "Hi."}), [AgentText("Hi.")]),
    (
        use("t1", "Bash", command="pytest -q", description="run"),
        [ToolStarted("t1", "Bash", "pytest -q")],
    ),
    (
        use("t1", "Edit", file_path="a.py", lines=[1]),
        [ToolStarted("t1", "Edit", "file_path: a.py, lines: [1]")],
    ),
    (result("t1", "fine", is_error=False), [ToolEnded("t1", "fine", failed=False)]),
    (result("t1", "Exit code 3", is_error=True), [ToolEnded("t1", "Exit code 3", failed=True)]),
    (
        result("t1", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        [ToolEnded("t1", "a\nb", failed=False)],
    ),
    (RETRY, [Notice("retry", "1 of 2 in 0.5 s: overloaded (529)")]),
    (
        {"type": "rate_limit_event", "rate_limit_info": LIMIT},
        [Notice("rate limit", "status: allowed_warning, limit: five_hour, resets: 1800000000")],
    ),
    ({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}}, []),
]

SHELL = "/bin/bash -lc 'make test'"
CALL = ToolStarted("item_1", "shell", "make test")
CODEX = [
    (item("agent_message", text="Done."), [AgentText("Done.")]),
    (item("reasoning", text="Hm."), [AgentText("Hm.")]),
    (item("error", message="no metadata"), [Notice("warning", "no metadata")]),
    (item("command_execution", "started", command=SHELL, exit_code=None), [CALL]),
    (
        item("command_execution", command=SHELL, aggregated_output="ok\n", exit_code=0),
        [ToolEnded("item_1", "ok\n", failed=False, call=CALL)],
    ),
    (
        item("command_execution", command=SHELL, exit_code=2, status="failed"),
        [ToolEnded("item_1", "exit code 2", failed=True, call=CALL)],
    ),
    (
        item("file_change", changes=[{"path": "a.py", "kind": "add"}], status="completed"),
        [ToolEnded("item_1", "", False, ToolStarted("item_1", "file_change", "add a.py"))],
    ),
    (
        item("mcp_tool_call", server="db", tool="ask", arguments={"q": 1}, status="failed",
             error={"message": "away"}),
        [ToolEnded("item_1", "away", True, ToolStarted("item_1", "db.ask", "q: 1"))],
    ),
    (
        item("mcp_tool_call", server="db", tool="ask", arguments={}, status="completed",
             result={"content": [{"type": "text", "text": "7"}]}),
        [ToolEnded("item_1", "7", False, ToolStarted("item_1", "db.ask", ""))],
    ),
    (
        {"type": "error", "message": "Reconnecting... 1/5 (stream disconnected)"},
        [Notice("retry", "1/5 (stream disconnected)")],
    ),
    ({"type": "error", "message": "boom"}, [Notice("error", "boom")]),
]  # fmt: skip

ODD: list[Any] = [
    None, [], "x", {}, {"type": 1}, {"type": ["assistant"]}, {"type": "assistant"},
    {"type": "assistant", "message": []}, blocks("assistant", 7, None, {"type": {}}),
    {"type": "user", "message": {"content": "text"}}, {"type": "item.completed", "item": 3},
    item("todo_list"), item("agent_message", "started", text="x"), {"type": "system"},
]  # fmt: skip


@pytest.mark.parametrize(("event", "activity"), [*CLAUDE, *CODEX, *((odd, []) for odd in ODD)])
def test_events_of_both_agents_are_read_by_their_form(event, activity) -> None:
    assert list(read_activity(None, event)) == activity


@pytest.mark.parametrize(
    "event",
    [
        use("", "", command=["a", 1]) | {"x": 1},
        blocks("assistant", {"type": "tool_use", "id": 7, "name": [], "input": [1]}),
        result("t", {"odd": 1}, is_error="yes"),
        {"type": "system", "subtype": "api_retry", "retry_delay_ms": "soon"},
        {"type": "rate_limit_event", "rate_limit_info": 3},
        item("command_execution", command=["x"], exit_code="1", aggregated_output={}),
        item("command_execution", command="echo '", id=4),
        item("file_change", changes=[1, {}]),
        item("mcp_tool_call", arguments="x", error=[1]),
        {"type": "error", "message": {"x": 1}},
    ],
)
def test_odd_fields_never_raise(event) -> None:
    log = ActivityLog()
    for activity in read_activity(None, event):
        log.take(activity)


PATHS = ActivityPaths.model_validate(
    {
        "text": "say", "tool": ["call.name", "fn"], "input": "call.args", "id": "id",
        "result": "out", "failed": "bad", "retry": "again", "rate_limit": "limit",
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("event", "activity"),
    [
        ({"say": "Hi."}, [AgentText("Hi.")]),
        ({"call": {"name": "run", "args": {"cmd": "ls"}}}, [ToolStarted(None, "run", "ls")]),
        ({"fn": "look", "id": 4}, [ToolStarted("4", "look", "")]),
        ({"id": 4, "out": "a"}, [ToolEnded("4", "a", failed=False)]),
        ({"id": 4, "out": "a", "bad": False}, [ToolEnded("4", "a", failed=False)]),
        ({"id": 4, "bad": 1}, [ToolEnded("4", "", failed=True)]),
        ({"fn": "f", "out": ""}, [ToolEnded(None, "", False, ToolStarted(None, "f", ""))]),
        ({"again": "2 of 3"}, [Notice("retry", "2 of 3")]),
        ({"limit": {"s": 1}}, [Notice("rate limit", '{"s": 1}')]),
        (blocks("assistant", {"type": "text", "text": "not by a path"}), []),
    ],
)
def test_other_agents_name_the_fields_of_their_events(event, activity) -> None:
    assert list(read_activity(PATHS, event)) == activity


def shown(live: LiveOutput) -> str:
    live.end()
    return "".join(part.text for part in live.take(1.0))


def parse(*events: object, agent: Agent | None = None, live: LiveOutput | None = None):
    parser = OutputParser(
        agent or Agent(command=("mine",), output="lines", answer="result"),
        before=None,
        on_spent=lambda _: None,
        live=live,
    )
    for event in events:
        parser.write((json.dumps(event) + "\n").encode())
    return parser.activity


def test_activity_is_shown_in_lines_while_the_agent_runs() -> None:
    live = LiveOutput()
    parse(
        blocks("assistant", {"type": "text", "text": "I will\nrun it."}),
        RETRY,
        use("t1", "Bash", command="make\ntest"),
        use("t2", "Read", file_path="b"),
        result("t2", "text of b", is_error=False),
        result("t1", "Exit code 3\nhello", is_error=True),
        item("command_execution", command=SHELL, exit_code=0),
        live=live,
    )
    assert shown(live).splitlines() == [
        "I will", "run it.", "! retry: 1 of 2 in 0.5 s: overloaded (529)",
        "> Bash: make test", "> Read: file_path: b", "< Read: text of b",
        "< failed: Bash: Exit code 3 hello", "> shell: make test", "< shell: no output",
    ]  # fmt: skip


def test_no_secret_is_shown_cut_in_two() -> None:
    live = LiveOutput()
    live.secrets = lambda: frozenset({"hush-hush-hush"})
    key = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(["A" * 64] * 40)
    parse(
        use("t1", "Bash", command="x" * 195 + "hush-hush-hush"),
        result("t1", key, is_error=True),
        use("t2", "Bash", command="after"),
        live=live,
    )
    text = shown(live)
    assert "hush" not in text
    assert "AAAA" not in text
    assert "> Bash: after" in text, "an unfinished key does not hide what follows"


def test_calls_are_recorded_with_their_results() -> None:
    log = parse(
        use("t1", "Bash", command="false"),
        use("t2", "Bash", command="true"),
        use("t3", "Bash", command="sleep 9"),
        result("t2", "fine", is_error=False),
        result("t1", "Exit code 1", is_error=True),
        result("t9", "of an unknown call", is_error=False),
    )
    assert log.calls == (
        ToolCallView(name="Bash", input="false", result="Exit code 1", failed=True),
        ToolCallView(name="Bash", input="true", result="fine", failed=False),
        ToolCallView(name="Bash", input="sleep 9"),
    )
    assert log.tools_failed is None


def test_a_call_that_codex_reports_twice_counts_once() -> None:
    begun = item("command_execution", "started", command=SHELL)
    ended = item("command_execution", command=SHELL, exit_code=1, aggregated_output="no")
    log = parse(begun, ended)
    assert log.calls == (ToolCallView(name="shell", input="make test", result="no", failed=True),)
    assert log.tools_failed == 1


@pytest.mark.parametrize(
    ("failures", "count"), [([], None), ([True], 1), ([True, True], 2), ([True, False], None)]
)
def test_only_a_run_without_a_working_call_has_failed_calls(failures, count) -> None:
    events: list[object] = []
    for number, failed in enumerate(failures):
        events += [use(f"t{number}", "Bash"), result(f"t{number}", "x", is_error=failed)]
    assert parse(*events).tools_failed == count


def test_the_number_of_recorded_calls_is_bounded() -> None:
    events: list[object] = []
    for number in range(CALLS + 20):
        events += [
            use(f"t{number}", "Bash", command="x" * 10_000),
            result(f"t{number}", "y" * 10_000, is_error=True),
        ]
    log = parse(*events)
    assert log.calls is not None
    assert len(log.calls) == CALLS
    assert log.tools_failed == CALLS + 20, "later calls are counted"
    outcome = redacted(Outcome(word="succeeded", tools=log.calls))
    assert outcome.tools is not None
    assert {(len(call.input), len(call.result)) for call in outcome.tools} == {(500, 500)}


def test_results_without_ids_belong_to_the_oldest_open_call() -> None:
    agent = Agent(
        command=("mine",), output="lines", answer="result",
        activity=ActivityPaths(tool=("fn",), result=("out",), failed=("bad",)),
    )  # fmt: skip
    log = parse({"fn": "a"}, {"fn": "b"}, {"out": "1"}, {"out": "2", "bad": "no"}, agent=agent)
    assert log.calls is not None
    assert [(c.name, c.result, c.failed) for c in log.calls] == [
        ("a", "1", False),
        ("b", "2", True),
    ]


def redacted(outcome: Outcome, **held: str) -> Outcome:
    book = AgentBook()
    task = BodyTask(
        session="s", address="do", action=Action.AGENT, iteration=1, attempt=1, inputs={},
        cwd=None, spill=Path("x"), timeout_s=1, url="", mint=str, agents=book,
        default_agent=None, worker_environment=held,
    )  # fmt: skip
    return redact_outcome(outcome, task)


def test_recorded_calls_are_redacted_before_they_are_cut() -> None:
    secret = "hush-hush-hush-hush"
    call = ToolCallView(
        name="Bash", input=f"echo {secret}", result="x" * 490 + secret + "x" * 2_000, failed=False
    )
    outcome = redacted(Outcome(word="succeeded", tools=(call,)), ANTHROPIC_API_KEY=secret)
    assert outcome.tools is not None
    assert outcome.tools[0].input == "echo [redacted]"
    assert outcome.tools[0].result == "x" * 490 + "[redacted]"
