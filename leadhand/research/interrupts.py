"""Tells an interrupt by the user (Ctrl-C) from a KeyboardInterrupt that a tool raises by itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
