"""What becomes of the values and errors of tools."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, SecretStr, model_serializer

from leadhand.models.views.session import WorkGrant
from leadhand.research.retry import CircuitBreaker
from leadhand.research.tool_calls import Called, ToolCalls


class Color(Enum):
    RED = "red"


@dataclass
class Point:
    x: object
    y: object


class Paper(BaseModel):
    title: str = Field("", alias="Title")
    on: date | None = None
    score: float | None = None
    counts: dict[Any, Any] | None = None
    key: SecretStr | None = None
    model_config = {"validate_by_name": True}

    @model_serializer(mode="wrap")
    def _given(self, handler: Any) -> Any:
        return {name: value for name, value in handler(self).items() if value is not None}


class Long(int):
    def __str__(self) -> str:
        return "long"


LONG = Long(10**5000)
CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)


def grant_of(tool: str = "tool") -> WorkGrant:
    return WorkGrant(
        address="step", step="step", tool=tool, arguments={}, fence=1, nonce="n" * 8, attempt=1,
        timeout_s=5, lease_s=60, key="ab12cd34:step",
    )  # fmt: skip


def called(tool: Callable[..., Any], *, timeout_s: float = 5) -> Called:
    return asyncio.run(ToolCalls({"tool": tool}).call(grant_of(), timeout_s=timeout_s))


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        ((1, (2,)), [1, [2]]),
        ({2: "b", None: 1, True: 2}, {"2": "b", "null": 1, "true": 2}),
        ("é", "é"),
        (2**70, 2**70),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00Z"),
        (Decimal("1.10"), "1.10"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("a/b"), "a/b"),
        ([Color.RED, {Color.RED: 1}], ["red", {"red": 1}]),
        ({"b", "a"}, ["a", "b"]),
        (Point(1, {Path("p"): (2,)}), {"x": 1, "y": {"p": [2]}}),
        (Paper(title="a", on=date(2026, 1, 2)), {"Title": "a", "on": "2026-01-02"}),
        (({"n": n} for n in range(2)), [{"n": 0}, {"n": 1}]),
    ],
)
def test_value_is_the_one_that_is_recorded(value: Any, recorded: Any) -> None:
    found = called(lambda: value)
    assert (found.error, found.value) == (None, recorded)
    assert type(found.value) is type(recorded)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "result: JSON has no nan"),
        ({"a": [1.0, 1e400]}, "result.a[1]: JSON has no inf"),
        (Decimal("NaN"), "result: JSON has no NaN"),
        ({"a b": "\ud800"}, "result['a b']: its text has a lone surrogate"),
        ({"a": object()}, "result.a: JSON has no form for object"),
        ({(1,): 1}, "its key (1,) is no text and no number"),
        ({"a": {1: "b", "1": "c"}}, "result.a: its keys 1 and '1' are both '1' in JSON"),
        (Point(1, {1: "b", "1": "c"}), "result.y: its keys 1 and '1' are both '1' in JSON"),
        (Paper(score=math.nan), "result.score: JSON has no nan"),
        (Paper(counts={1: 1, "1": 2}), "result.counts: its keys 1 and '1' are both"),
        (Paper(key=SecretStr("k")), "result.key: it is a secret"),
        (b"\xff", "result: its bytes are no UTF-8 text"),
        (LONG, "result: it is an integer of more than 4,000 digits"),
        (CIRCLE, "contains itself"),
    ],
)
def test_value_that_cannot_be_recorded_is_a_failure(value: Any, why: str) -> None:
    found = called(lambda: value)
    assert found.error is not None
    assert why in found.error
    assert found.value is None
    found.error.encode()


def test_error_is_a_text_that_can_be_sent() -> None:
    def fails() -> None:
        raise OSError("no file \ud800")

    assert called(fails).error == "no file ?"


def test_tools_that_hang_hold_up_neither_state_nor_exit(tmp_path: Path) -> None:
    """More than the threads of any default pool, and a process that ends with them."""
    program = """
import asyncio, sys, threading, time
from leadhand.models.views.session import WorkGrant
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


def test_result_of_an_asynchronous_generator_is_collected() -> None:
    async def pages() -> AsyncIterator[int]:
        yield 1
        yield 2

    assert called(pages).value == [1, 2]


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (asyncio.CancelledError(), "CancelledError: the tool, or a task that it awaited, was"),
        (KeyboardInterrupt(), "KeyboardInterrupt: the tool raised it by itself"),
        (GeneratorExit(), "GeneratorExit: the tool raised it by itself"),
        (SystemExit(2), "SystemExit(2): the tool raised it by itself"),
        (Wordless(), "Wordless without a text: its __str__ raised RuntimeError"),
        (
            ExceptionGroup("pages", [OSError("away"), ExceptionGroup("", [KeyError("k")])]),
            "ExceptionGroup: pages: OSError: away; KeyError: 'k'",
        ),
        (
            BaseExceptionGroup("pages", [KeyboardInterrupt(), ValueError("x" * 9_000)]),
            "BaseExceptionGroup: pages: KeyboardInterrupt; ValueError: xxx",
        ),
    ],
)
def test_whatever_a_tool_raises_is_its_failure(
    error: BaseException, text: str, *, is_async: bool
) -> None:
    def fails() -> None:
        raise error

    async def fails_too() -> None:
        raise error

    found = called(fails_too if is_async else fails)
    assert found.error is not None
    assert found.error.startswith(text)
    assert (found.why, found.retryable) == ("failed_step", True)


def test_tool_that_is_cancelled_from_within_fails_and_opens_its_breaker() -> None:
    async def gives_up() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    for tool in (gives_up, cancels_itself):
        calls = ToolCalls({"tool": tool}, lambda: CircuitBreaker(threshold=1))
        found = asyncio.run(calls.call(grant_of(), timeout_s=5))
        assert (found.error or "").startswith("CancelledError: the tool")
        assert calls.breakers["tool"].state == "open"


def test_call_of_a_cancelled_task_is_cancelled() -> None:
    async def cancel() -> None:
        begun = asyncio.Event()

        async def waits() -> None:
            begun.set()
            await asyncio.sleep(60)

        calls = ToolCalls({"tool": waits})
        task = asyncio.create_task(calls.call(grant_of(), timeout_s=5))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert calls.breakers["tool"].failures == 0

    asyncio.run(cancel())


def test_tool_that_ends_an_iteration_fails() -> None:
    found = called(lambda: next(iter(())))
    assert found.error == "StopIteration: "
