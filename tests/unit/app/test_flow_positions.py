"""Zero-based positions in a flow's file, and the nodes that its steps were made into."""

from __future__ import annotations

from typing import Any

import pytest

from app.compiler import compile_document
from app.history.points import end_of, steps_at, with_turns
from tests.flows import ask, flow, llm, loop

TWO = [{"role": "user", "content": [text]} for text in ("first", "second")]
START: dict[str, Any] = {"type": "startLoop"}


@pytest.mark.parametrize(
    ("steps", "position", "ends"),
    [
        ([llm(), llm(label="b")], ["1"], ["b"]),
        ([llm(messages=TWO, label="a")], ["0"], ["a"]),
        ([{**ask("if"), "then": [llm()], "else": [llm(label="no")]}, llm()], ["0"], ["no"]),
        ([{**ask("if"), "then": [llm()], "else": [llm(label="no")]}], ["0", "0"],
         ["if1-then-llm1", "no"]),
        ([loop(llm(), loop(llm(), ask(), label="in"), label="out")], ["0"], ["out"]),
        ([loop(llm(), loop(llm(), ask(), label="in"), label="out")], ["0", "1", "1"],
         ["out/in/break2"]),
        ([START, llm(), ask(), {"type": "endLoop"}, llm(label="last")], ["2"], ["loop1/break3"]),
        ([START, llm(), ask(), {"type": "endLoop"}, llm(label="last")], ["4"], ["last"]),
        ([llm()], ["7"], []),
    ],
)  # fmt: skip
def test_a_position_is_the_last_node_of_its_step(
    steps: list[dict[str, Any]], position: list[str], ends: list[str]
) -> None:
    program = compile_document(flow(*steps))
    assert [end_of(program, path) for path in steps_at(program, position)] == ends


LEFT = {**ask("if"), "then": [llm(), loop(llm(), label="in")]}


@pytest.mark.parametrize(
    ("steps", "position", "named"),
    [
        ([loop(loop(llm(), label="in"), label="out")], ["0[2]", "0", "0"], "out[2]/in/llm1"),
        ([loop(llm(), LEFT, label="out")], ["0[2]", "1", "0"], "out[2]/if2-then-llm1"),
        ([loop(llm(), LEFT, label="out")], ["0[2]", "1", "1[3]", "0"], "out[2]/in[3]/llm1"),
        ([START, llm(), ask(), {"type": "endLoop"}], ["1[3]"], "loop1[3]/llm2"),
        ([START, llm(), LEFT, {"type": "endLoop"}], ["2[3]", "0"], "loop1[3]/if3-then-llm1"),
        ([START, START, llm(), {"type": "endLoop"}, {"type": "endLoop"}], ["2[4]"],
         "loop1/loop2[4]/llm3"),
        ([START, loop(llm(), label="in"), {"type": "endLoop"}], ["1[2]", "0"], "loop1/in[2]/llm1"),
        ([llm()], ["0[2]"], None),
        ([loop(llm(), LEFT, label="out")], ["0", "1[2]", "0"], None),
    ],
)  # fmt: skip
def test_an_iteration_that_is_named_is_that_of_its_loop(
    steps: list[dict[str, Any]], position: list[str], named: str | None
) -> None:
    program = compile_document(flow(*steps))
    (step,) = steps_at(program, position)
    found = with_turns(program, end_of(program, step), position)
    assert found == (named.split("/") if named else None)
