"""Runs a call in a thread of its own: one that never returns holds up no other, and no exit."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


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
