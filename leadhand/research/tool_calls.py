"""Calls one tool for an attempt: with its timeout, its circuit breaker, and a plain error."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Literal, TypeVar

from leadhand.models.views.session import WorkGrant
from leadhand.research.retry import CircuitBreaker, CircuitOpenError
from leadhand.research.values import ValueRefusedError, to_json_value

T = TypeVar("T")
Tools = Mapping[str, Callable[..., Any]]
Why = Literal["failed_step", "timeout", "circuit_open"]
#: Characters of the texts of an exception and of the members of a group.
_LONGEST, _LONGEST_MEMBER = 20_000, 500
#: The most members of a group whose texts are quoted.
_MOST_MEMBERS = 20


async def in_thread(call: Callable[..., T], *args: Any, **named: Any) -> T:
    """Runs a function in a new daemon thread with the caller's context variables, and awaits it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    run = partial(contextvars.copy_context().run, call, *args, **named)
    thread = threading.Thread(target=_run, args=(run, loop, ended), name="leadhand-call")
    thread.daemon = True
    thread.start()
    return await ended


def _run(run: Callable[[], T], loop: asyncio.AbstractEventLoop, ended: asyncio.Future[T]) -> None:
    note: Callable[[], None]
    try:
        note = partial(_note, ended, run())
    except StopIteration as error:  # a future refuses it
        wrong = RuntimeError(f"StopIteration: {error}")
        wrong.__cause__ = error
        note = partial(_note, ended, None, wrong)
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        note = partial(_note, ended, None, error)
    with suppress(RuntimeError):  # the loop is closed: the caller has ended
        loop.call_soon_threadsafe(note)


def _note(ended: asyncio.Future[Any], value: Any, error: BaseException | None = None) -> None:
    if ended.done():
        return  # cancelled
    if error is not None:
        ended.set_exception(error)
    else:
        ended.set_result(value)


class UserInterruptError(Exception):
    """The user has interrupted the program while a tool ran; the event loop goes on to stop."""


class _Watch:
    """Wraps the handler of SIGINT while workflows run in the main thread."""

    users = 0
    is_interrupted = False

    def __init__(self) -> None:
        self._before: Callable[[int, FrameType | None], object] = signal.default_int_handler

    def begin(self) -> None:
        self.users += 1
        before = signal.getsignal(signal.SIGINT)
        if self.users > 1:
            return
        self.is_interrupted = False
        if callable(before):
            self._before = before
            signal.signal(signal.SIGINT, self._note)

    def end(self) -> None:
        self.users -= 1
        if not self.users and signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_interrupted = True
        self._before(number, frame)


_WATCH = _Watch()


@contextmanager
def watch_interrupts() -> Iterator[None]:
    """Note interrupts by the user; in other threads than the main one there are none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _WATCH.begin()
    try:
        yield
    finally:
        _WATCH.end()


def is_interrupted() -> bool:
    """Whether the user has interrupted a workflow of the main thread that has not ended."""
    return _WATCH.is_interrupted


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
    """A tool returned `{"success": False}`, or raised what is no ordinary error."""


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

        Asynchronous tools run in the event loop, others in a thread; what a generator yields is
        collected. Whatever a tool raises is its failure, unless this task is cancelled or the user
        interrupts the program, which raises UserInterruptError.
        """
        begun = time.monotonic()
        breaker = self._breaker(grant.tool)
        try:
            if breaker is None:
                value = await self._call(grant, timeout_s)
            else:
                value = await breaker.call(self._call, grant, timeout_s)
            return Called(time.monotonic() - begun, value=value)
        except UserInterruptError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its failure
            return _failed(error, timeout_s, time.monotonic() - begun)

    def _breaker(self, tool: str) -> CircuitBreaker | None:
        if self._new_breaker is None:
            return None
        if tool not in self.breakers:
            self.breakers[tool] = self._new_breaker()
        return self.breakers[tool]

    async def _call(self, grant: WorkGrant, timeout_s: float) -> Any:
        async with asyncio.timeout(timeout_s):
            value = await _in_own_task(_returned(self._tools[grant.tool], grant.arguments))
        if isinstance(value, dict) and value.get("success") is False:
            raise ToolFailedError(str(value.get("error") or value.get("message") or value))
        return value


async def _in_own_task(tool: Coroutine[Any, Any, Any]) -> Any:
    """Await a tool in a task of its own: a cancellation from within it is not one of the caller."""
    try:
        return await asyncio.create_task(tool)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ToolFailedError(
            "CancelledError: the tool, or a task that it awaited, was cancelled from within"
        ) from error


async def _returned(tool: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What a tool returns, as JSON. An error that would end the event loop is an ordinary one."""
    try:
        if inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(
            getattr(tool, "__call__", None)  # noqa: B004 - an object with an async __call__
        ):
            value = await tool(**arguments)
        else:
            value = await in_thread(_begun, tool, arguments)
        while inspect.isawaitable(value):
            value = await value
        if isinstance(value, AsyncIterator):
            value = await _collected(value)
        return value.value if isinstance(value, _Converted) else to_json_value(value, "result")
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and is_interrupted():
            raise UserInterruptError from None
        raise ToolFailedError(describe_error(error)) from error


@dataclass(frozen=True)
class _Converted:
    """A result that is JSON already."""

    value: Any


def _begun(tool: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a tool in its thread, where its generator runs, too; what is awaited is returned."""
    value = tool(**arguments)
    if inspect.isawaitable(value) or isinstance(value, AsyncIterator):
        return value
    return _Converted(to_json_value(value, "result"))


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    if not inspect.isasyncgen(items):
        return [item async for item in items]
    async with aclosing(items):
        return [item async for item in items]


def describe_error(error: BaseException) -> str:
    """Returns the text of an exception that a tool raised.

    >>> describe_error(ValueError("no such page"))
    'no such page'
    >>> describe_error(KeyboardInterrupt())
    'KeyboardInterrupt: the tool raised it by itself'
    >>> describe_error(ExceptionGroup("two pages", [OSError("away"), KeyError()]))
    'ExceptionGroup: two pages: OSError: away; KeyError'
    """
    name = type(error).__name__
    match error:
        case BaseExceptionGroup():
            leaves = list(_leaves(error))
            shown = "; ".join(_member(one) for one in leaves[:_MOST_MEMBERS])
            more = len(leaves) - _MOST_MEMBERS
            rest = f"; and {more:,} more" if more > 0 else ""
            text = f"{name}: {_text_of(error.message)}: {shown}{rest}"
        case Exception() | asyncio.CancelledError():
            text = _text_of(error) or name
        case _:
            said = _text_of(error)
            text = f"{name}{f'({said})' if said else ''}: the tool raised it by itself"
    return text.encode("utf-8", "replace").decode()[:_LONGEST]


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for one in group.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found


def _member(error: BaseException) -> str:
    name, text = type(error).__name__, _text_of(error)[:_LONGEST_MEMBER]
    return f"{name}: {text}" if text else name


def _text_of(error: object) -> str:
    """The text of an exception; its class says how, which may fail."""
    try:
        return str(error)
    except BaseException as wrong:  # noqa: BLE001 - it is the user's code
        why = f"its __str__ raised {type(wrong).__name__}"
        return f"{type(error).__name__} without a text: {why}"


def _failed(error: Exception, timeout_s: float, elapsed: float) -> Called:
    match error:
        case CircuitOpenError():
            return Called(elapsed, error=str(error), why="circuit_open")
        case TimeoutError() if elapsed >= timeout_s:
            text = f"it took longer than {timeout_s:g} s"
            return Called(elapsed, error=text, why="timeout")
        case ValueRefusedError():
            return Called(elapsed, error=f"its result cannot be recorded: {error}")
        case _:
            return Called(elapsed, error=describe_error(error))
