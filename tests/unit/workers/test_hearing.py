"""What agent programs print, as they really print it: answers, conversations, cost and tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.core.outcomes import Busy, Usage
from workers.agents.output_parser import OutputParser
from workers.processes.output import Capture
from workers.registry.agent_entry import BUILTIN_AGENTS, Agent, Prices, UsagePaths
from workers.registry.errors import OutputUnreadable

CLAUDE, CODEX = BUILTIN_AGENTS["claude"], BUILTIN_AGENTS["codex"]
TEXT = Agent(command=("x",))
JSON = Agent(command=("x",), output="json", answer="result", failed="[is_error=true].result")


class Heard:
    """One run of an agent that printed this."""

    def __init__(self, agent: Agent, printed: str | bytes, folder: Path, **given) -> None:
        self.spent: list[Usage] = []
        hearing = OutputParser(
            agent,
            before=given.get("before"),
            on_spent=self.spent.append,
            codex_home=given.get("codex_home"),
        )
        capture = Capture(folder / "stdout")
        raw = printed.encode() if isinstance(printed, str) else printed
        for start in range(0, len(raw), 7_001):  # as pipes do: lines are cut anywhere
            capture.write(raw[start : start + 7_001])
            hearing.write(raw[start : start + 7_001])
        self.error, self.answer = "", ""
        try:
            self.answer = hearing.answer(capture.close())
        except OutputUnreadable as error:
            self.error = str(error)
        self.thread, self.usage, self.told = (
            hearing.thread,
            hearing.usage,
            hearing.conversation_usage,
        )
        self.final = hearing.final
        self.busy, self.is_stuck = hearing.busy, hearing.is_stuck()


def lines(*events: object) -> str:
    return "\n".join(json.dumps(event) for event in events) + "\n"


def message(text: str) -> dict[str, object]:
    return {"type": "item.completed", "item": {"type": "agent_message", "text": text}}


def turn(fresh: int, said: int) -> dict[str, object]:
    usage = {"input_tokens": fresh, "cached_input_tokens": 5, "output_tokens": said}
    return {"type": "turn.completed", "usage": usage}


def thought(name: str, tokens: int) -> dict[str, object]:
    usage = {"input_tokens": tokens, "cache_read_input_tokens": 10, "output_tokens": 1}
    return {"type": "assistant", "message": {"id": name, "usage": usage}, "session_id": "s1"}


RESULT = {
    "type": "result",
    "is_error": False,
    "result": "done",
    "session_id": "s1",
    "total_cost_usd": 0.25,
    "usage": {"input_tokens": 40, "cache_read_input_tokens": 60, "output_tokens": 7},
}


def test_plain_text_is_the_answer(tmp_path) -> None:
    heard = Heard(TEXT, "  done\n", tmp_path)
    assert (heard.answer, heard.thread, heard.usage) == ("done", None, None)


def test_a_field_of_the_json_object_is_the_answer(tmp_path) -> None:
    assert Heard(JSON, lines({"result": "done", "is_error": False}), tmp_path).answer == "done"
    deeper = Agent(command=("x",), output="json", answer="a.b")
    assert Heard(deeper, lines({"a": {"b": [1]}}), tmp_path).answer == "[1]"


def test_an_object_over_many_lines_is_read_whole(tmp_path) -> None:
    assert Heard(JSON, json.dumps({"result": "done"}, indent=2), tmp_path).answer == "done"


def test_chatter_before_the_json_does_not_matter(tmp_path) -> None:
    assert Heard(JSON, 'warning: old\n{"result": "ok"}\n', tmp_path).answer == "ok"


def test_claude_tells_answer_conversation_cost_and_tokens(tmp_path) -> None:
    heard = Heard(CLAUDE, lines({"type": "system", "session_id": "s1"}, RESULT), tmp_path)
    assert (heard.answer, heard.thread) == ("done", "s1")
    assert heard.usage == Usage(cost_usd=0.25, input_tokens=100, output_tokens=7)
    assert heard.told is None


def test_claude_tells_its_tokens_while_it_works_once_for_each_message(tmp_path) -> None:
    printed = lines(thought("a", 100), thought("a", 100), thought("b", 200))
    heard = Heard(CLAUDE, printed, tmp_path)
    assert [usage.input_tokens for usage in heard.spent] == [110, 110, 320]
    assert heard.usage == Usage(input_tokens=320, output_tokens=2), "it was ended before its end"


def test_the_last_word_of_claude_counts_and_not_the_sum_of_all(tmp_path) -> None:
    heard = Heard(CLAUDE, lines(thought("a", 100), RESULT), tmp_path)
    assert heard.usage == Usage(cost_usd=0.25, input_tokens=100, output_tokens=7)


def test_the_last_agent_message_of_codex_is_the_answer(tmp_path) -> None:
    started = {"type": "thread.started", "thread_id": "t1"}
    printed = lines(started, message("first"), message("last"), turn(100, 9))
    heard = Heard(CODEX, printed, tmp_path)
    assert (heard.answer, heard.thread) == ("last", "t1")
    assert heard.usage == Usage(input_tokens=100, output_tokens=9)


def test_codex_counts_from_the_beginning_of_its_conversation_and_we_do_not(tmp_path) -> None:
    before = Usage(input_tokens=70, output_tokens=4)
    heard = Heard(CODEX, lines(message("more"), turn(100, 9)), tmp_path, before=before)
    assert heard.usage == Usage(input_tokens=30, output_tokens=5)
    assert heard.told == Usage(input_tokens=100, output_tokens=9)
    anew = Heard(CODEX, lines(message("more"), turn(50, 9)), tmp_path, before=before)
    assert anew.usage == Usage(input_tokens=50, output_tokens=9)


def test_what_an_agent_tells_of_its_conversation_while_it_works_is_not_all_of_this_run(
    tmp_path,
) -> None:
    told = CODEX.usage.model_copy(update={"cost_usd": ("cost",)})
    agent = CODEX.model_copy(update={"usage": UsagePaths(), "running": told})
    before = Usage(cost_usd=2.0, input_tokens=70, output_tokens=4)
    printed = lines(turn(80, 5) | {"cost": 2.25}, turn(100, 9) | {"cost": 2.5}, message("done"))
    heard = Heard(agent, printed, tmp_path, before=before)
    assert [usage.cost_usd for usage in heard.spent] == [0.25, 0.5]
    assert heard.usage == Usage(cost_usd=0.5, input_tokens=30, output_tokens=5)
    assert heard.told == Usage(cost_usd=2.5, input_tokens=100, output_tokens=9)


def test_tokens_cost_what_the_entry_says(tmp_path) -> None:
    priced = CODEX.model_copy(update={"prices": Prices(input_usd=2, output_usd=10, cached_usd=1)})
    heard = Heard(priced, lines(message("x"), turn(1_000_005, 100_000)), tmp_path)
    assert heard.usage is not None
    assert heard.usage.cost_usd == pytest.approx(2.0 + 0.000005 + 1.0)


def test_an_answer_too_long_for_memory_is_heard_all_the_same(tmp_path) -> None:
    noise = [{"type": "noise", "text": "x" * 1000}] * 200
    assert Heard(CODEX, lines(message("kept"), *noise), tmp_path).answer == "kept"
    padded = {"noise": "x" * 200_000, "result": "far out"}
    assert Heard(JSON, lines(padded), tmp_path).answer == "far out"


@pytest.mark.parametrize("number", [-1, True, "7", None, float("inf"), float("nan"), 10**400, []])
def test_a_number_that_none_can_be_is_not_counted(tmp_path, number) -> None:
    odd = {"type": "turn.completed", "usage": {"input_tokens": number, "output_tokens": number}}
    assert Heard(CODEX, lines(message("x"), odd), tmp_path).usage is None


@pytest.mark.parametrize(
    ("agent", "printed", "why"),
    [
        (JSON, "oops", "not JSON: 'oops'"),
        (JSON, "[" * 100_000, "not JSON"),
        (JSON, "", "printed nothing"),
        (JSON, lines({"other": 1}), "no field 'result'"),
        (JSON, lines({"is_error": True, "result": "no credit"}), "no credit"),
        (CLAUDE, lines({**RESULT, "is_error": True, "result": "API Error: 529"}), "API Error: 529"),
        (CODEX, lines({"type": "turn.failed", "error": {"message": "boom"}}), "boom"),
        (CODEX, lines(["not an event"]), "no field '.type=item.completed"),
        (CODEX, b"\xff\xfe\x00{\n{\xff}\n", "no field"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, agent, printed, why) -> None:
    heard = Heard(agent, printed, tmp_path)
    assert why.replace(".type", "[type") in heard.error


def codex_command(output: str, status: str = "failed") -> dict[str, object]:
    item = {"type": "command_execution", "aggregated_output": output, "status": status}
    return {"type": "item.completed", "item": {**item, "command": "x", "exit_code": 1}}


NO_SANDBOX = codex_command("bwrap: execvp codex-linux-sandbox: No such file or directory\n")


def test_codex_whose_sandbox_starts_no_command_has_failed(tmp_path: Path) -> None:
    printed = lines(NO_SANDBOX, NO_SANDBOX, message("It is written."), turn(10, 1))
    heard = Heard(CODEX, printed, tmp_path)
    assert heard.error.startswith(
        "it reports an error: its sandbox started none of its commands"
        " (bwrap: execvp codex-linux-sandbox: No such file or directory); set CODEX_HOME to"
    )
    assert heard.final, "another attempt would fail in the same way"
    assert heard.usage is not None


@pytest.mark.parametrize(
    "worked",
    [
        codex_command("1 test failed"),
        codex_command("bwrap: is a program\n", status="completed"),
        {"type": "item.completed", "item": {"type": "file_change", "status": "completed"}},
        {"type": "item.completed", "item": {"type": "mcp_tool_call", "status": "completed"}},
    ],
)
def test_codex_that_got_one_tool_call_through_is_believed(tmp_path: Path, worked: object) -> None:
    heard = Heard(CODEX, lines(NO_SANDBOX, worked, message("Done."), turn(10, 1)), tmp_path)
    assert (heard.error, heard.answer) == ("", "Done.")


def test_codex_that_called_no_tool_is_believed(tmp_path: Path) -> None:
    assert Heard(CODEX, lines(message("Yes."), turn(10, 1)), tmp_path).answer == "Yes."


def test_odd_items_of_codex_are_ignored(tmp_path: Path) -> None:
    odd = [
        {"type": "item.completed"},
        {"type": "item.completed", "item": "command_execution"},
        {"type": "item.completed", "item": {"type": "file_change", "status": "failed"}},
    ]
    heard = Heard(CODEX, lines(*odd, NO_SANDBOX, message("Done.")), tmp_path)
    assert "its sandbox started none" in heard.error


#: What the programs print when the connection to their model is refused or dropped.
CONNECTIONS = {
    "claude: refused": (CLAUDE, "API Error: Unable to connect to API (ConnectionRefused)"),
    "claude: dropped before the answer": (
        CLAUDE,
        "API Error: Unable to connect to API (ECONNRESET)",
    ),
    "claude: dropped in the answer": (
        CLAUDE,
        "API Error: Connection to the API was lost (ECONNRESET). This is usually temporary.",
    ),
    "codex: refused": (CODEX, "stream disconnected before completion: error sending request"),
    "codex: dropped": (
        CODEX,
        "stream disconnected before completion: Transport error: network error: error decoding "
        "response body",
    ),
}


def reports(agent: Agent, text: str) -> dict[str, object]:
    """The last line of a program whose turn failed."""
    if agent is CODEX:
        return {"type": "turn.failed", "error": {"message": text}}
    return {"type": "result", "is_error": True, "api_error_status": None, "result": text}


@pytest.mark.parametrize("case", CONNECTIONS)
def test_a_dropped_or_refused_connection_is_busy(tmp_path, case: str) -> None:
    agent, text = CONNECTIONS[case]
    heard = Heard(agent, lines(reports(agent, text)), tmp_path)
    assert text in heard.error
    assert heard.busy == Busy(tries=5)


#: What Codex prints again and again if the connection to its model is refused.
WAITS = {
    "type": "error",
    "message": "Reconnecting... waiting for network (Connection failed: error sending request)",
}


def test_codex_that_waits_for_a_refused_connection_without_end_is_busy(tmp_path) -> None:
    began = {"type": "turn.started"}
    heard = Heard(CODEX, lines(began, WAITS, WAITS, WAITS), tmp_path)
    assert "waiting for network" in heard.error
    assert (heard.is_stuck, heard.busy) == (True, Busy(tries=5))
    heard = Heard(CODEX, lines(began, WAITS, WAITS, message("Hi."), WAITS, WAITS), tmp_path)
    assert (heard.is_stuck, heard.busy, heard.answer) == (False, None, "Hi.")


@pytest.mark.parametrize("agent", [CLAUDE, CODEX], ids=["claude", "codex"])
def test_an_answer_that_speaks_of_connections_is_not_busy(tmp_path, agent: Agent) -> None:
    text = "API Error: Invalid key; stream disconnected before completion: is another error"
    assert Heard(agent, lines(reports(agent, text)), tmp_path).busy is None
    answer: object = message("stream disconnected before completion: explained")
    if agent is CLAUDE:
        said = "API Error: Unable to connect to API is what I fixed"
        answer = {"type": "result", "is_error": False, "result": said}
    assert Heard(agent, lines(answer), tmp_path).busy is None
