"""Repeats a failed call with exponential back-off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RetryConfig:
    """How often a call is made, and how long to wait between two calls."""

    max_attempts: int = 3
    initial_delay: float = 1.0
    max_delay: float = 60.0
    base: float = 2.0
    #: Whether each delay is multiplied by a random number from 0.5 to 1.
    jitter: bool = True

    def delay(self, failed: int, *, chance: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait after this number of failed calls.

        >>> [RetryConfig(jitter=False).delay(number) for number in (1, 2, 3, 10)]
        [1.0, 2.0, 4.0, 60.0]
        >>> RetryConfig().delay(1, chance=lambda: 0.0)
        0.5
        """
        try:
            wait = min(self.max_delay, self.initial_delay * self.base ** (failed - 1))
        except OverflowError:
            wait = self.max_delay
        return wait * (0.5 + chance() / 2) if self.jitter else wait


async def retry_with_backoff(
    function: Callable[..., Awaitable[Any]],
    *args: Any,
    config: RetryConfig | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    **arguments: Any,
) -> Any:
    """Call an async function until it succeeds; raise its last error if all attempts fail."""
    config = config or RetryConfig()
    failed = 0
    while True:
        try:
            return await function(*args, **arguments)
        except Exception:
            failed += 1
            if failed >= config.max_attempts:
                raise
        await sleep(config.delay(failed))
