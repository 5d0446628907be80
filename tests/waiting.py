"""Waits for what is about to be true, so that no test sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], *, timeout: float = 30.0) -> Found:
    """What the condition gave once it was true; fails the test where it never was."""
    give_up = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > give_up:
            raise AssertionError(f"still {found!r} after {timeout:g} s")
        time.sleep(0.005)
