"""Runs scripts: generators that yield requests and pauses, blocking or in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from leadhand.contract.calls import Script

T = TypeVar("T")


class Pause(NamedTuple):
    """A step of a script that waits."""

    seconds: float


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
