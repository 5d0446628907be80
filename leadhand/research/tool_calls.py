"""Calls one tool for an attempt: with its timeout, its circuit breaker, and a plain error."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from leadhand.models.local_work import VALUE_CHARACTERS
from leadhand.models.views.work import WorkGrant
from leadhand.research.circuit_breaker import CircuitBreaker, CircuitOpenError
from leadhand.research.threads import in_thread

Tools = Mapping[str, Callable[..., Any]]
Why = Literal["failed_step", "timeout", "circuit_open"]


@dataclass(frozen=True)
class Called:
    """How a call ended."""

    elapsed: float
    value: Any = None
    #: None after a success.
    error: str | None = None
    why: Why = "failed_step"
    retryable: bool = True


class ToolFailedError(Exception):
    """A tool returned `{"success": False}`."""


class ValueRefusedError(Exception):
    """A tool returned what cannot be recorded."""


class ToolCalls:
    """Calls tools; each has a circuit breaker of its own."""

    def __init__(
        self, tools: Tools, breaker: Callable[[], CircuitBreaker] | None = CircuitBreaker
    ) -> None:
        self._tools = tools
        self._new_breaker = breaker
        self.breakers: dict[str, CircuitBreaker] = {}

    async def call(self, grant: WorkGrant, *, timeout_s: float) -> Called:
        """Call a step's tool within a timeout; return its value or error, and how long it took.

        Asynchronous tools run in the event loop, others in a thread.
        """
        begun = time.monotonic()
        breaker = self._breaker(grant.tool)
        try:
            if breaker is None:
                value = await self._call(grant, timeout_s)
            else:
                value = await breaker.call(self._call, grant, timeout_s)
            return Called(time.monotonic() - begun, value=value)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its failure
            return _failed(error, timeout_s, time.monotonic() - begun)

    def _breaker(self, tool: str) -> CircuitBreaker | None:
        if self._new_breaker is None:
            return None
        if tool not in self.breakers:
            self.breakers[tool] = self._new_breaker()
        return self.breakers[tool]

    async def _call(self, grant: WorkGrant, timeout_s: float) -> Any:
        tool = self._tools[grant.tool]
        async with asyncio.timeout(timeout_s):
            if inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(
                getattr(tool, "__call__", None)  # noqa: B004 - an object with an async __call__
            ):
                value = await tool(**grant.arguments)
            else:
                value = await in_thread(tool, **grant.arguments)
                if inspect.isawaitable(value):
                    value = await value
        value = _as_json(value)
        if isinstance(value, dict) and value.get("success") is False:
            raise ToolFailedError(str(value.get("error") or value.get("message") or value))
        return value


def _as_json(value: Any) -> Any:
    """The value as it is recorded: a tuple is a list, and names are texts."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueRefusedError(f"its result is not valid JSON: {error}") from error
    if len(text) > VALUE_CHARACTERS:
        raise ValueRefusedError(
            f"its result has {len(text):,} characters as JSON, more than {VALUE_CHARACTERS:,};"
            " return a file's path"
        )
    return json.loads(text)


def _failed(error: Exception, timeout_s: float, elapsed: float) -> Called:
    match error:
        case CircuitOpenError():
            return Called(elapsed, error=str(error), why="circuit_open")
        case TimeoutError() if elapsed >= timeout_s:
            text = f"it took longer than {timeout_s:g} s"
            return Called(elapsed, error=text, why="timeout")
        case _:
            text = str(error).encode("utf-8", "replace").decode()
            return Called(elapsed, error=text or type(error).__name__)
