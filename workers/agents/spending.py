"""What an agent used, from the numbers that it prints."""

from __future__ import annotations

from typing import NamedTuple, Self

from pydantic import JsonValue

from app.outcomes import Usage
from workers.agents.entries import Agent, Told
from workers.agents.fields import find

#: Numbers beyond these are not believed.
_MOST_TOKENS = 10**12
_MOST_USD = 1_000_000.0
#: How many parts of a run are told apart; what comes after them is not counted.
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
    """Adds up the parts that lines tell of, or keeps the last word where each tells of all."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self.of_conversation = told.of == "conversation"
        self._parts: dict[str, _Numbers] = {}
        self.sum: _Numbers | None = None

    def take(self, event: JsonValue) -> bool:
        """Whether the event told of something."""
        numbers = _numbers(self._told, event)
        if numbers is None:
            return False
        if self._told.each is None:
            self.sum = numbers
            return True
        return self._take_part(str(find(self._told.each, event)), numbers)

    def _take_part(self, part: str, numbers: _Numbers) -> bool:
        if part not in self._parts and len(self._parts) >= _MOST_PARTS:
            return False
        before = self._parts.get(part)
        self._parts[part] = numbers
        taken = _Numbers() if before is None else _negated(before)
        self.sum = (self.sum or _Numbers()).plus(taken).plus(numbers)
        return True


class Meter:
    """Counts what one run told of itself: while it runs, and at its end."""

    def __init__(self, agent: Agent, *, before: Usage | None = None) -> None:
        self._prices = agent.prices
        self._final = _Count(agent.usage)
        self._running = _Count(agent.running)
        self._before = before

    def take(self, event: JsonValue) -> bool:
        """Whether the event told of something."""
        running, final = self._running.take(event), self._final.take(event)
        return running or final

    @property
    def usage(self) -> Usage | None:
        """Of this run alone; None where nothing was told."""
        count = self._running if self._final.sum is None else self._final
        usage = self._as_usage(count.sum)
        if usage is None or self._before is None or not count.of_conversation:
            return usage
        return _less(usage, self._before)

    @property
    def told(self) -> Usage | None:
        """Of the whole conversation; None where the agent does not tell of that."""
        counts = (self._final, self._running)
        told = [count.sum for count in counts if count.of_conversation and count.sum is not None]
        return self._as_usage(told[0]) if told else None

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


def _less(told: Usage, before: Usage) -> Usage:
    """What came on top; an agent that counts from the beginning again is believed as it is."""
    if told.input_tokens < before.input_tokens or told.output_tokens < before.output_tokens:
        return told
    cost = None
    if told.cost_usd is not None:
        cost = max(0.0, told.cost_usd - (before.cost_usd or 0.0))
    return Usage(
        cost_usd=cost,
        input_tokens=told.input_tokens - before.input_tokens,
        output_tokens=told.output_tokens - before.output_tokens,
    )


def _numbers(told: Told, event: JsonValue) -> _Numbers | None:
    """What an event tells; None where it tells nothing."""
    cost = _sum(told.cost_usd, event)
    tokens = [_sum(p, event) for p in (told.input_tokens, told.cached_tokens, told.output_tokens)]
    if cost is None and all(count is None for count in tokens):
        return None
    counted = [min(int(count or 0), _MOST_TOKENS) for count in tokens]
    return _Numbers(None if cost is None else min(cost, _MOST_USD), *counted)


def _sum(paths: tuple[str, ...], event: JsonValue) -> float | None:
    found = [number for path in paths if (number := _number(find(path, event))) is not None]
    return sum(found) if found else None


def _number(value: JsonValue) -> float | None:
    """A number that can be counted: no word, no truth, nothing below nought and no infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= _MOST_TOKENS else None


def _negated(numbers: _Numbers) -> _Numbers:
    cost = None if numbers.cost_usd is None else -numbers.cost_usd
    tokens = (numbers.input_tokens, numbers.cached_tokens, numbers.output_tokens)
    return _Numbers(cost, *(-count for count in tokens))
