"""Repeats a failed call with exponential back-off, and opens a circuit after many failures."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from leadhand.research.models import AgentError


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


class CircuitOpenError(AgentError):
    """The circuit breaker is open: the call was not made."""


class CircuitBreaker:
    """Refuses calls after `threshold` failures in a row, for `timeout` seconds.

    After that one call is made: its success closes the breaker, its failure opens it again.
    """

    def __init__(
        self,
        threshold: int = 5,
        timeout: float = 60.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if threshold < 1 or timeout < 0:
            raise ValueError("give a threshold of at least 1, and a timeout of at least 0 seconds")
        self.threshold = threshold
        self.timeout = timeout
        self.failures = 0
        self._clock = clock
        self._opened_at: float | None = None
        self._is_trying = False

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        """Return closed (calls are made), open (none are), or half-open (one is tried)."""
        if self._opened_at is None:
            return "closed"
        return "open" if self._clock() - self._opened_at < self.timeout else "half-open"

    def before_call(self) -> None:
        """Raise CircuitOpenError unless a call may be made now."""
        state = self.state
        if state == "open" or (state == "half-open" and self._is_trying):
            opened_at = self._opened_at or 0.0
            left = max(0.0, self.timeout - (self._clock() - opened_at))
            raise CircuitOpenError(
                f"Circuit breaker is open after {self.failures} failures in a row; the next call"
                f" is made in {left:.0f} s"
            )
        self._is_trying = state == "half-open"

    def record_success(self) -> None:
        """Close the breaker after a successful call."""
        self.failures, self._opened_at, self._is_trying = 0, None, False

    def record_failure(self) -> None:
        """Count a failure; the breaker opens at the threshold, or if half-open."""
        self.failures += 1
        self._is_trying = False
        if self.failures >= self.threshold:
            self._opened_at = self._clock()

    def record_cancellation(self) -> None:
        """Ignore a cancelled call, which is neither a success nor a failure."""
        self._is_trying = False

    async def call(
        self, function: Callable[..., Awaitable[Any]], *args: Any, **arguments: Any
    ) -> Any:
        """Call the function unless the breaker is open, and count how the call ends."""
        self.before_call()
        try:
            value = await function(*args, **arguments)
        except Exception:
            self.record_failure()
            raise
        except BaseException:
            self.record_cancellation()
            raise
        self.record_success()
        return value
