"""Tools and checkers that run in this process: what they return, print and raise."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.core.outcomes import Outcome
from app.core.program import Action
from tests.unit.workers.bodies.running import code_of
from workers.inline_calls import InlineCalls
from workers.processes.warm_pool import MOST_BYTES, CallSlots
from workers.registry.inline import InlineFunctions
from workers.registry.tools import ToolCatalogue

CODE = """
import os, sys

def pid(): return os.getpid()
def say(what: str): print(what)
async def later(number: int): return number + 1
def fail(): raise KeyError("nothing there")
def leave(): sys.exit(3)
def odd(): return {1, 2}
def give_up(): return {"success": False, "error": "no luck"}
def judge(work: str, iteration: int): return work == "good", f"in {iteration}"
def needs(other): return True

def hand_back(number: int):
    import ctypes
    slots = ctypes.cast(number, ctypes.py_object).value
    slots.hand_back(next(slots.running()))
"""
NAMES = (
    "pid",
    "say",
    "later",
    "fail",
    "leave",
    "odd",
    "give_up",
    "judge",
    "needs",
    "gone",
    "hand_back",
)


class Inline:
    """Runs bodies with inline functions."""

    def __init__(self, body: Callable[..., Outcome], folder: Path) -> None:
        folder.mkdir()
        (folder / "sums.py").write_text(CODE)
        entries = (f'[functions."sums:{name}"]\ninline = true\n' for name in NAMES)
        (folder / "tools.toml").write_text("".join(entries))
        self.slots = CallSlots()
        self.text = b"{}"
        self.handed_back = 0
        self._body = body
        self._calls = InlineCalls(
            self.slots.own(), text=lambda _: self.text, on_handed_back=self._count
        )
        self._shelf = ToolCatalogue([folder], inline=InlineFunctions([folder]))

    def _count(self) -> None:
        self.handed_back += 1

    def use(self, name: str, **arguments: Any) -> Outcome:
        inputs = {"tool": f"sums:{name}", "arguments": arguments}
        return self._body(Action.TOOL, inputs, shelf=self._shelf, inline=self._calls)

    def check(self, name: str, **inputs: Any) -> Outcome:
        given = {"checker": {"tool": name}, "task": "t", **inputs}
        self.running_at: list[int] = []  # how many calls ran when the check was seen to be slow

        def on_slow() -> None:
            self.running_at.append(len([*self.slots.running()]))

        return self._body(
            Action.CHECK, given, shelf=self._shelf, inline=self._calls, on_slow=on_slow
        )


@pytest.fixture
def inline(body: Callable[..., Outcome], tmp_path: Path) -> Inline:
    return Inline(body, tmp_path / "tools")


def test_result_and_output_of_an_inline_tool_are_those_of_the_step(inline: Inline):
    assert inline.use("pid").value == os.getpid()
    assert inline.use("say", what="hello").text == "hello"
    assert inline.use("later", number="2").value == 3
    assert list(inline.slots.running()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fail", "KeyError: 'nothing there'"),
        ("leave", "SystemExit: 3"),
        ("odd", "it returned what JSON cannot hold"),
        ("give_up", "no luck"),
        ("say", "argument 'what': it is missing"),
        ("gone", "cannot import 'sums:gone'"),
    ],
)
def test_inline_tool_that_fails_says_why_and_ends_its_call(inline: Inline, name: str, said: str):
    outcome = inline.use(name)
    assert outcome.word == "failed"
    assert outcome.reason is not None
    assert said in outcome.reason.text
    assert list(inline.slots.running()) == []


def test_call_that_cannot_be_written_down_runs_in_another_process(inline: Inline):
    inline.text = b"x" * (MOST_BYTES + 1)
    assert inline.use("pid").value not in (None, os.getpid())


def test_process_learns_that_its_other_steps_are_handed_back(inline: Inline):
    inline.use("pid")
    assert inline.handed_back == 0
    inline.use("hand_back", number=id(inline.slots))
    assert inline.handed_back == 1


def test_tool_that_is_a_checker_gives_the_verdict(inline: Inline):
    good = inline.check("sums:judge", work="good", iteration=2)
    assert (good.verdict, good.text) == ("accept", "in 2")
    bad = inline.check("sums:judge", work="bad", iteration=3)
    assert (bad.verdict, bad.text) == ("retry", "in 3")
    assert inline.running_at == [0]  # what waits is done before the call, which may be long


@pytest.mark.parametrize(
    ("name", "said"),
    [("sums:needs", "argument 'other': it is missing"), ("sums:other", "ToolNotFound")],
)
def test_checker_that_cannot_be_called_ends_the_loop(inline: Inline, name: str, said: str):
    outcome = inline.check(name)
    assert (outcome.verdict, code_of(outcome)) == ("terminate", "failed_step")
    assert said in outcome.text
