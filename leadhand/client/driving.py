"""Runs scripts: generators that yield requests and pauses, blocking or in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pause(NamedTuple):
    """A step of a script that waits."""

    seconds: float


class Script(Protocol[T_co]):
    """Steps that something else carries out, each with its result; then the script's own result."""

    def __iter__(self) -> Generator[Any, Any, T_co]:
        """Return the steps."""


def drive(script: Script[T], act: Callable[[Any], object]) -> T:
    """Carry out a script's steps by `act`, and its pauses; the script gets what a step raises."""
    steps = iter(script)
    try:
        step = next(steps)
        while True:
            try:
                done: object = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    done = act(step)
            except BaseException as error:  # noqa: BLE001 - the script decides
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def drive_async(script: Script[T], act: Callable[[Any], Awaitable[object]]) -> T:
    """Carry out a script's steps as `drive` does, in an event loop."""
    steps = iter(script)
    try:
        step = next(steps)
        while True:
            try:
                done: object = None
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    done = await act(step)
            except BaseException as error:  # noqa: BLE001 - the script decides
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()
