"""Arranges the steps of a session by time; spans in which nothing ran are squeezed (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from leadhand.models.views.step import StepView

#: The width of the drawing, and of a squeezed span, in its own units.
WIDTH, SQUEEZED = 1000.0, 14.0
#: The smallest width of a bar.
SMALLEST = 3.0
#: A span without work is squeezed if it is longer than this, and than a tenth of the work.
IDLE_S, IDLE_PART = 10.0, 0.1

Span = tuple[float, float]


class Bar(NamedTuple):
    """A step that began."""

    step: StepView
    x: float
    width: float
    #: From its begin to its end, or to now.
    seconds: float
    has_ended: bool


class Idle(NamedTuple):
    """A span in which nothing ran."""

    x: float
    seconds: float


class Timeline(NamedTuple):
    """Bars by their begin, and squeezed spans."""

    bars: list[Bar]
    idle: list[Idle]


def timeline(steps: Sequence[StepView], *, now: float) -> Timeline:
    """Lays out the steps that began as bars by time, and shortens long idle gaps; `now` is in s."""
    spans = [(_span(step, now), step) for step in steps if step.started_at]
    spans.sort(key=lambda one: (one[0], one[1].address))
    busy = _merged([span for span, _ in spans])
    worked = sum(end - start for start, end in busy) or 1.0
    long = max(IDLE_S, IDLE_PART * worked)
    gaps = [(a[1], b[0]) for a, b in pairwise(busy) if b[0] - a[1] > long]
    first, last = (busy[0][0], busy[-1][1]) if busy else (0.0, 1.0)
    shown = last - first - sum(end - start for start, end in gaps)
    scale = max(1.0, WIDTH - SQUEEZED * len(gaps)) / (shown or 1.0)

    def at(moment: float) -> float:
        before = [(start, end) for start, end in gaps if end <= moment]
        cut = sum(end - start for start, end in before)
        return (moment - first - cut) * scale + SQUEEZED * len(before)

    bars = []
    for (start, end), step in spans:
        x = min(at(start), WIDTH - SMALLEST)
        width = max(SMALLEST, at(end) - x)
        bars.append(Bar(step, round(x, 1), round(width, 1), end - start, bool(step.ended_at)))
    idle = [Idle(round(at(end) - SQUEEZED, 1), end - start) for start, end in gaps]
    return Timeline(bars, idle)


def _span(step: StepView, now: float) -> Span:
    start = datetime.fromisoformat(step.started_at or "").timestamp()
    end = datetime.fromisoformat(step.ended_at).timestamp() if step.ended_at else now
    return start, max(start, end)


def _merged(spans: Sequence[Span]) -> list[Span]:
    """The spans without overlaps, in their order.

    >>> _merged([(0.0, 2.0), (1.0, 3.0), (9.0, 9.5)])
    [(0.0, 3.0), (9.0, 9.5)]
    """
    found: list[Span] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
