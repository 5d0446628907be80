"""Computes an agent's cost and tokens from the numbers in its output."""

from __future__ import annotations

from typing import NamedTuple, Self

from pydantic import JsonValue

from app.core.outcomes import Usage
from workers.registry.agent_entry import Agent, UsagePaths, find

#: Upper bounds of reported numbers.
_MOST_TOKENS = 10**12
_MOST_USD = 1_000_000.0
#: How many parts of a run are counted separately; later ones are ignored.
_MOST_PARTS = 100_000


class _Numbers(NamedTuple):
    cost_usd: float | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def plus(self, other: Self) -> Self:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return self._replace(
            cost_usd=sum(costs) if costs else None,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class _Count:
    """Sums numbers per part, or keeps the latest if each event reports the total."""

    def __init__(self, paths: UsagePaths) -> None:
        self._paths = paths
        self.of_conversation = paths.of == "conversation"
        self._parts: dict[str, _Numbers] = {}
        self.sum: _Numbers | None = None

    def take(self, event: JsonValue) -> bool:
        """Add the numbers of an event; return whether it has any."""
        numbers = _numbers(self._paths, event)
        if numbers is None:
            return False
        if self._paths.each is None:
            self.sum = numbers
            return True
        return self._take_part(str(find(self._paths.each, event)), numbers)

    def _take_part(self, part: str, numbers: _Numbers) -> bool:
        if part not in self._parts and len(self._parts) >= _MOST_PARTS:
            return False
        before = self._parts.get(part)
        self._parts[part] = numbers
        taken = _Numbers() if before is None else _negated(before)
        self.sum = (self.sum or _Numbers()).plus(taken).plus(numbers)
        return True


class Meter:
    """Computes the usage of one run, from the numbers during the run and those at its end."""

    def __init__(self, agent: Agent, *, before: Usage | None = None) -> None:
        self._prices = agent.prices
        self._final = _Count(agent.usage)
        self._running = _Count(agent.running)
        self._before = before

    def take(self, event: JsonValue) -> bool:
        """Add the usage that an event reports; return whether it reports any."""
        running, final = self._running.take(event), self._final.take(event)
        return running or final

    @property
    def usage(self) -> Usage | None:
        """Return the usage of this run; None if the output has no numbers."""
        count = self._running if self._final.sum is None else self._final
        usage = self._as_usage(count.sum)
        if usage is None or self._before is None or not count.of_conversation:
            return usage
        return _subtract(usage, self._before)

    @property
    def conversation_usage(self) -> Usage | None:
        """Return the usage of the whole conversation; None if it is not reported."""
        counts = (self._final, self._running)
        sums = [count.sum for count in counts if count.of_conversation and count.sum is not None]
        return self._as_usage(sums[0]) if sums else None

    def _as_usage(self, numbers: _Numbers | None) -> Usage | None:
        if numbers is None:
            return None
        cost = numbers.cost_usd
        if cost is None and self._prices is not None:
            cost = self._prices.cost_usd(
                input_tokens=numbers.input_tokens,
                cached_tokens=numbers.cached_tokens,
                output_tokens=numbers.output_tokens,
            )
        return Usage(
            cost_usd=None if cost is None else min(cost, _MOST_USD),
            input_tokens=min(numbers.input_tokens, _MOST_TOKENS),
            output_tokens=min(numbers.output_tokens, _MOST_TOKENS),
        )


def _subtract(total: Usage, before: Usage) -> Usage:
    """The conversation's total less its earlier turns; the total itself if the count restarted."""
    if total.input_tokens < before.input_tokens or total.output_tokens < before.output_tokens:
        return total
    cost = None
    if total.cost_usd is not None:
        cost = max(0.0, total.cost_usd - (before.cost_usd or 0.0))
    return Usage(
        cost_usd=cost,
        input_tokens=total.input_tokens - before.input_tokens,
        output_tokens=total.output_tokens - before.output_tokens,
    )


def _numbers(paths: UsagePaths, event: JsonValue) -> _Numbers | None:
    """The numbers of an event; None if it has none."""
    cost = _sum(paths.cost_usd, event)
    tokens = [
        _sum(p, event) for p in (paths.input_tokens, paths.cached_tokens, paths.output_tokens)
    ]
    if cost is None and all(count is None for count in tokens):
        return None
    counted = [min(int(count or 0), _MOST_TOKENS) for count in tokens]
    return _Numbers(None if cost is None else min(cost, _MOST_USD), *counted)


def _sum(paths: tuple[str, ...], event: JsonValue) -> float | None:
    found = [number for path in paths if (number := _number(find(path, event))) is not None]
    return sum(found) if found else None


def _number(value: JsonValue) -> float | None:
    """The value if it is a number in range; None for anything else, booleans included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= _MOST_TOKENS else None


def _negated(numbers: _Numbers) -> _Numbers:
    cost = None if numbers.cost_usd is None else -numbers.cost_usd
    tokens = (numbers.input_tokens, numbers.cached_tokens, numbers.output_tokens)
    return _Numbers(cost, *(-count for count in tokens))
