"""Arranges the steps of a session by time, and its verdicts as matrices (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from leadhand.models.verdicts import counts_text
from leadhand.models.views.result import LedgerEntry
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


class Cell(NamedTuple):
    """A checker's judgement of one iteration."""

    name: str
    #: None if the checker did not judge.
    verdict: str | None
    feedback: str
    #: Its number among the checks of the iteration.
    number: int
    #: The tests that it ran; '' if they are not known.
    counts: str = ""


class Row(NamedTuple):
    """One iteration."""

    #: Its number in the ledger, from 0.
    number: int
    entry: LedgerEntry
    #: In the order of the columns; None where the checker is not of this loop.
    cells: list[Cell | None]

    @property
    def seconds(self) -> float | None:
        """Returns how long the iteration took, in seconds; None if that was not recorded."""
        return seconds_of(self.entry)


class Matrix(NamedTuple):
    """The iterations of one loop."""

    loop: str
    checkers: list[str]
    rows: list[Row]


def matrices(entries: Sequence[LedgerEntry], *, first: int = 0) -> list[Matrix]:
    """Builds a table of iterations and checkers for each loop; `first` numbers the first entry."""
    found: dict[str, list[tuple[int, LedgerEntry]]] = {}
    for number, entry in enumerate(entries, first):
        found.setdefault(entry.loop, []).append((number, entry))
    return [_matrix(loop, rows) for loop, rows in found.items()]


def _matrix(loop: str, entries: list[tuple[int, LedgerEntry]]) -> Matrix:
    cells = {number: cells_of(entry) for number, entry in entries}
    names = list(dict.fromkeys(one.name for found in cells.values() for one in found))
    rows = []
    for number, entry in entries:
        by_name = {one.name: one for one in cells[number]}
        rows.append(Row(number, entry, [by_name.get(name) for name in names]))
    return Matrix(loop, names, rows)


def seconds_of(entry: LedgerEntry) -> float | None:
    """Returns how long an iteration took, in seconds; None if its times were not recorded."""
    first, last = entry.started_ms, entry.ended_ms
    return None if first is None or last is None else (last - first) / 1000


def cells_of(entry: LedgerEntry) -> list[Cell]:
    """Returns the verdicts of one iteration, one table cell per checker."""
    return [
        Cell(
            name=str(check.get("name") or f"check {number + 1}"),
            verdict=None if check.get("verdict") is None else str(check["verdict"]),
            feedback=str(check.get("feedback") or ""),
            number=number,
            counts=counts_text(check.get("counts")),
        )
        for number, check in enumerate(entry.checks)
    ]
