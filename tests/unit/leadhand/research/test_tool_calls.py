"""What becomes of the values and errors of tools."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadhand.models.local_work import VALUE_CHARACTERS
from leadhand.models.views.work import WorkGrant
from leadhand.research.tool_calls import Called, ToolCalls


def grant_of(tool: str = "tool") -> WorkGrant:
    return WorkGrant(
        address="step", step="step", tool=tool, arguments={}, fence=1, nonce="n" * 8, attempt=1,
        timeout_s=5, lease_s=60, key="ab12cd34:step",
    )  # fmt: skip


def called(tool: Callable[..., Any], *, timeout_s: float = 5) -> Called:
    return asyncio.run(ToolCalls({"tool": tool}).call(grant_of(), timeout_s=timeout_s))


@pytest.mark.parametrize(
    ("value", "recorded"), [((1, (2,)), [1, [2]]), ({1: "b"}, {"1": "b"}), ("é", "é")]
)
def test_value_is_the_one_that_is_recorded(value: Any, recorded: Any) -> None:
    found = called(lambda: value)
    assert (found.error, found.value) == (None, recorded)
    assert type(found.value) is type(recorded)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "not valid JSON"),
        ("\ud800", "not valid JSON"),
        ({"a": object()}, "not valid JSON"),
        ({(1,): 1}, "not valid JSON"),
        ("x" * (VALUE_CHARACTERS - 1), "more than 2,097,152; return a file's path"),
    ],
)
def test_value_that_cannot_be_recorded_is_a_failure(value: Any, why: str) -> None:
    found = called(lambda: value)
    assert found.error is not None
    assert why in found.error
    assert found.value is None
    found.error.encode()


def test_longest_value_is_recorded() -> None:
    assert called(lambda: "x" * (VALUE_CHARACTERS - 2)).error is None


def test_error_is_a_text_that_can_be_sent() -> None:
    def fails() -> None:
        raise OSError("no file \ud800")

    assert called(fails).error == "no file ?"


def test_tools_that_hang_hold_up_neither_state_nor_exit(tmp_path: Path) -> None:
    """More than the threads of any default pool, and a process that ends with them."""
    program = """
import asyncio, sys, threading, time
from leadhand.models.views.work import WorkGrant
from leadhand.research import StateManager
from leadhand.research.tool_calls import ToolCalls

grant = WorkGrant(
    address="step", step="step", tool="tool", arguments={}, fence=1, nonce="n" * 8, attempt=1,
    timeout_s=5, lease_s=60, key="ab12cd34:step",
)

async def run():
    calls = ToolCalls({"tool": threading.Event().wait}, None)
    hung = await asyncio.gather(*[calls.call(grant, timeout_s=0.1) for _ in range(40)])
    assert {one.why for one in hung} == {"timeout"}
    calls = ToolCalls({"tool": lambda: 1}, None)
    assert (await calls.call(grant, timeout_s=2)).value == 1
    assert await asyncio.wait_for(StateManager(sys.argv[1]).load_state("none"), 2) is None

asyncio.run(run())
print("ended")
"""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, str(tmp_path)],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr


def test_tool_that_ends_an_iteration_fails() -> None:
    found = called(lambda: next(iter(())))
    assert found.error == "StopIteration: "
