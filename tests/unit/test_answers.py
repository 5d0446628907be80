"""Answers as agent programs really write them."""

from __future__ import annotations

import json

import pytest

from workers.agents.answers import read_answer
from workers.agents.errors import AnswerUnreadable
from workers.capture import Capture, Captured


def lines(*events: object) -> Captured:
    return Captured(text="\n".join(json.dumps(event) for event in events) + "\n")


def message(text: str) -> dict[str, object]:
    return {"type": "item.completed", "item": {"type": "agent_message", "text": text}}


def test_plain_text_is_the_answer() -> None:
    assert read_answer("text", Captured(text="  done\n")) == "done"


def test_a_field_of_the_json_object_is_the_answer() -> None:
    output = lines({"type": "result", "result": "done", "is_error": False})
    assert read_answer("json:result", output) == "done"
    assert read_answer("json:a.b", lines({"a": {"b": [1]}})) == "[1]"


def test_chatter_before_the_json_does_not_matter() -> None:
    assert read_answer("json:result", Captured(text='warning: old\n{"result": "ok"}\n')) == "ok"


def test_the_last_agent_message_of_codex_is_the_answer() -> None:
    output = lines({"type": "thread.started"}, message("first"), message("last"), {"usage": 1})
    assert read_answer("codex", output) == "last"


def test_an_answer_too_long_for_memory_is_read_from_its_file(tmp_path) -> None:
    taken = Capture(tmp_path / "out")
    taken.write(
        lines(message("kept"), *[{"type": "noise", "text": "x" * 1000}] * 200).text.encode()
    )
    assert read_answer("codex", taken.close()) == "kept"


@pytest.mark.parametrize(
    ("how", "output", "why"),
    [
        ("json:result", Captured(text="oops"), "not JSON: 'oops'"),
        ("json:result", Captured(text="[" * 100_000), "not JSON"),
        ("json:result", lines({"other": 1}), "no field 'result'"),
        ("json:result", lines({"is_error": True, "result": "no credit"}), "no credit"),
        ("codex", lines({"type": "turn.failed", "error": "boom"}), "boom"),
        ("codex", lines(["not an event"]), "holds no agent_message"),
    ],
)
def test_what_cannot_be_read_says_why(how, output, why) -> None:
    with pytest.raises(AnswerUnreadable, match=why):
        read_answer(how, output)
