"""The transcript: which entries a step adds, and their authors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.core.outcomes import Outcome, Thread, Usage
from app.core.program import Action, Step
from app.history.transcript import TEXT, as_markdown, question_of, records_of
from leadhand.cli.watch import _shown
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.step import ToolCallView, TranscriptEntry
from leadhand.models.views.step import TranscriptEntry as Entry
from workers.prompts import retry_prompt

ADDRESS = "outer~1[2]/inner~1[3]/ask"


def step(action: Action = Action.AGENT, **more: Any) -> Step:
    return Step.model_validate({"id": "ask", "action": action, **more})


def said(step: Step, outcome: Outcome, **more: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in records_of(step, ADDRESS, outcome, **more)]


def test_an_agent_is_told_something_and_answers():
    outcome = Outcome(
        word="succeeded", prompt="do it", text="done", verdict=None,
        usage=Usage(cost_usd=0.5, input_tokens=3, output_tokens=1),
    )  # fmt: skip
    talk = step(conversation="claude|main", label="Ask")
    place = {
        "address": ADDRESS, "label": "Ask", "depth": 2, "iteration": 3, "agent": "claude",
        "identifier": "main", "attempt": 2,
    }  # fmt: skip
    assert said(talk, outcome, attempt=2) == [
        {**place, "role": "user", "text": "do it"},
        {**place, "role": "assistant", "text": "done", "cost_usd": 0.5, "input_tokens": 3,
         "output_tokens": 1},
    ]  # fmt: skip


def test_a_command_doer_is_recorded_with_what_it_was_given():
    command = step(inputs={"doer": {"command": "make"}})
    assert [
        (entry["role"], entry["text"])
        for entry in said(command, Outcome(word="succeeded", prompt="Build it.", text="built"))
    ] == [("user", "Build it."), ("assistant", "built")]


def test_the_raw_answer_is_shown_beside_what_was_parsed_from_it():
    outcome = Outcome(word="succeeded", text='{"answer":"no"}', raw='Hm. {"answer": "no"}',
                      prompt="Is it?")  # fmt: skip
    _, answer = said(step(Action.DECIDE), outcome)
    assert (answer["text"], answer["raw"]) == (outcome.text, outcome.raw)
    entry = Entry.model_validate({"seq": 3, "at": "now", **answer})
    assert list(_shown(entry))[-2:] == ["    the whole answer:", '      Hm. {"answer": "no"}']
    assert '> Hm. {"answer": "no"}\n' in "".join(as_markdown("x", iter([entry])))


def test_tool_calls_are_shown_with_the_answer_or_the_failure():
    calls = (
        ToolCallView(name="Bash", input="make\ntest", result="Exit code 2", failed=True),
        ToolCallView(name="Read", input="a.py", result="", failed=False),
        ToolCallView(name="Bash", input="sleep 9"),
    )
    outcome = Outcome(word="succeeded", prompt="Do it.", text="done", tools=calls)
    asked, answer = said(step(), outcome)
    assert "tools" not in asked
    assert [call["name"] for call in answer["tools"]] == ["Bash", "Read", "Bash"]
    entry = Entry.model_validate({"seq": 3, "at": "now", **answer})
    lines = [
        "> Bash: make test", "< failed: Exit code 2", "> Read: a.py", "< no output",
        "> Bash: sleep 9", "< no result",
    ]  # fmt: skip
    assert list(_shown(entry))[1:] == [*(f"    {line}" for line in lines), "    done"]
    page = "".join(as_markdown("x", iter([entry])))
    assert "Tool calls:\n\n" + "\n".join(f"> {line}" for line in lines) in page
    reason = Reason(code=ReasonCode.FAILED_STEP, text="timed out")
    (note,) = said(step(), Outcome(word="failed", reason=reason, tools=calls))
    assert len(note["tools"]) == 3


def test_an_answer_that_decided_nothing_is_in_the_transcript():
    reason = Reason(code=ReasonCode.INVALID_ANSWER, text="it gave no decision")
    outcome = Outcome(word="failed", raw="I cannot tell", prompt="Is it?", reason=reason)
    _, answer, note = said(step(Action.DECIDE), outcome)
    assert (answer["role"], answer["text"]) == ("assistant", "I cannot tell")
    assert note["text"] == "failed: it gave no decision"


def test_an_instruction_that_is_given_again_stands_there_once():
    reason = Reason(code=ReasonCode.FAILED_STEP, text="no")
    prompt = retry_prompt("x" * 3000, "no such file")
    failed = Outcome(word="failed", prompt=prompt, reason=reason)
    told, note = said(step(), failed, attempt=2)
    assert (told["attempt"], note["attempt"]) == (2, 2)
    assert "x" not in told["text"].replace("previous", "")
    assert told["text"].startswith("The same instruction again, and:")
    assert told["text"].endswith("no such file\n")
    whole, _ = said(step(), failed, attempt=1)
    assert whole["text"] == prompt
    (asked, _) = said(step(), failed.model_copy(update={"prompt": "do it"}), attempt=2)
    assert asked["text"] == "do it"
    entry = TranscriptEntry.model_validate({"seq": 3, "at": "now", **told})
    assert "iteration 3 at" in "".join(as_markdown("t", iter([entry])))
    assert " · attempt 2 · now" in "".join(as_markdown("t", iter([entry])))
    (line, *_) = _shown(Entry.model_validate(entry.model_dump()))
    assert line.endswith(", attempt 2  now")


def test_a_flows_own_words_go_before_those_of_its_program():
    origin = {"path": "steps[1]", "kind": "llm", "index": 2, "total": 3, "agent": "claude",
              "identifier": "main"}  # fmt: skip
    talk = step(conversation="0123abcd|0123", origin=origin)
    (record,) = said(talk, Outcome(word="succeeded", text="done"))
    assert (record["index"], record["agent"], record["identifier"]) == (2, "claude", "main")


def test_a_failure_is_noted_with_what_it_cost():
    reason = Reason(code=ReasonCode.FAILED_STEP, text="no such program")
    outcome = Outcome(word="failed", reason=reason, usage=Usage(cost_usd=0.25))
    (note,) = said(step(), outcome)
    assert (note["role"], note["text"], note["cost_usd"]) == (
        "note", "failed: no such program", 0.25,
    )  # fmt: skip


def test_a_person_answers_a_question():
    outcome = Outcome(word="succeeded", prompt="May I?", text="yes")
    roles = [(record["role"], record["text"]) for record in said(step(Action.HUMAN), outcome)]
    assert roles == [("human", "yes")]
    (asked,) = map(json.loads, question_of(step(Action.HUMAN), ADDRESS, "May I?"))
    assert (asked["role"], asked["text"], asked["address"]) == ("note", "May I?", ADDRESS)
    assert question_of(step(Action.WAIT), ADDRESS, None) == []


@pytest.mark.parametrize(
    ("action", "kind"), [("break", "break"), ("decide", "if"), ("check", "check"),
                         ("tool", "subflow")],
)  # fmt: skip
def test_what_a_flows_scripts_and_subflows_came_to_is_noted_once(action: str, kind: str):
    origin = {"path": "steps[1]", "kind": kind, "index": 2, "total": 3}
    decided = step(Action(action), origin=origin)
    (note,) = said(decided, Outcome(word="succeeded", verdict="accept", text="2 of 2"))
    assert (note["role"], note["text"], note["verdict"]) == ("note", "2 of 2", "accept")
    reason = Reason(code=ReasonCode.FAILED_STEP, text="no such program")
    (note,) = said(decided, Outcome(word="failed", reason=reason))
    assert note["text"] == "failed: no such program"
    child = step(Action.CHILD, origin=origin | {"kind": "subflow"})
    (note,) = said(child, Outcome(word="succeeded", text="session x is done"))
    assert (note["role"], note["text"]) == ("note", "session x is done")
    beneath = Reason(code=ReasonCode.FAILED_STEP, text="the root of it")
    why = Reason(code=ReasonCode.FAILED_STEP, text="session x is failed", beneath=beneath)
    (note,) = said(child, Outcome(word="failed", text="session x is failed", reason=why))
    assert note["text"] == "session x is failed: the root of it"


def test_a_checker_agent_speaks_and_a_command_does_not():
    accepts = Outcome(word="succeeded", verdict="accept", text="fine", prompt="judge")
    check = step(Action.CHECK, inputs={"checker": {"agent": "codex"}})
    assert [(r["role"], r["agent"]) for r in said(check, accepts)] == [
        ("user", "codex"), ("assistant", "codex"),
    ]  # fmt: skip
    assert said(step(Action.CHECK), accepts.model_copy(update={"prompt": None})) == []
    assert said(step(Action.TOOL), Outcome(word="succeeded", text="7")) == []
    assert said(step(), Outcome(word="skipped")) == []


def test_a_forgotten_conversation_is_noted():
    thread = Thread(conversation="claude|main")
    forget = step(Action.TOOL, conversation="claude|main")
    (note,) = said(forget, Outcome(word="succeeded", thread=thread, text="forgotten"))
    assert note["text"] == "conversation claude|main is forgotten"


def test_a_long_text_is_cut_and_says_so():
    (record,) = said(step(), Outcome(word="succeeded", text="x" * 50_000))
    assert len(record["text"]) <= TEXT
    assert record["cut"] is True


def test_markdown_keeps_headings_of_a_text_apart_from_its_own():
    entry = TranscriptEntry(
        seq=1, at="2026-11-21", address=ADDRESS, label="A\n# sk", role="assistant",
        text="# Mine\n\nyes", agent="claude", identifier="main", iteration=3, verdict="accept",
        cost_usd=0.5,
    )  # fmt: skip
    assert "".join(as_markdown("Flow: x", iter([entry]))) == (
        "# Flow: x\n\n## 1. A # sk · assistant (claude|main) · iteration 3 at"
        " outer~1[2]/inner~1[3]/ask · accept · $0.5000 · 2026-11-21\n\n> # Mine\n>\n> yes\n"
    )
