"""Bars of the charts of economics (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from api.dashboard.render import cost
from leadhand.models.views.fleet import Acceptance, DayCount, StatisticsView

#: The size of a chart, in its own units.
WIDTH, HEIGHT = 720, 120
#: Statuses with a colour of their own, from the bottom of a bar; the others are above them.
_TONES = {"completed": "good", "failed": "bad"}


class Part(NamedTuple):
    """A part of a bar: a rectangle with a tone and a text."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    text: str


class Value(NamedTuple):
    """A part of a bar before it is drawn."""

    tone: str
    amount: float
    text: str


class Share(NamedTuple):
    """How many loops reached an iteration, and how many of them were accepted in it."""

    iteration: int
    reached: int
    accepted: int


def ends_by_day(view: StatisticsView) -> list[Part]:
    """Returns a bar per day with the sessions that ended, by status."""
    return _bars([list(_ends(day)) for day in _days(view)])


def cost_by_day(view: StatisticsView) -> list[Part]:
    """Returns a bar per day with its cost."""
    days = _days(view)
    return _bars([[Value("run", day.cost_usd, f"{day.day}: {cost(day.cost_usd)}")] for day in days])


def shares(rows: Sequence[Acceptance]) -> list[Share]:
    """Sums, for each iteration number, the loops of all agents that reached it and were accepted.

    >>> row = Acceptance(agent="a", iteration=2, reached=3, accepted=1)
    >>> shares([row, row.model_copy(update={"agent": "b"})])
    [Share(iteration=2, reached=6, accepted=2)]
    """
    return [
        Share(
            number,
            sum(row.reached for row in rows if row.iteration == number),
            sum(row.accepted for row in rows if row.iteration == number),
        )
        for number in sorted({row.iteration for row in rows})
    ]


def share_by_iteration(found: Sequence[Share]) -> list[Part]:
    """Returns a chart bar per iteration number: the accepted share of the loops that reached it."""
    return _bars(
        [
            [
                Value(
                    "good",
                    one.accepted / one.reached,
                    f"iteration {one.iteration}: {one.accepted} of {one.reached} accepted",
                )
            ]
            for one in found
        ],
        most=1.0,
    )


def _days(view: StatisticsView) -> list[DayCount]:
    """All days of the period, also those in which nothing was counted."""
    first, last = date.fromisoformat(view.first), date.fromisoformat(view.last)
    known = {one.day: one for one in view.days}
    names = [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]
    return [known.get(name, DayCount(day=name)) for name in names]


def _ends(day: DayCount) -> Iterator[Value]:
    """The counts of a day from the bottom of its bar."""
    others = sorted(set(day.ended) - set(_TONES))
    for status in (*_TONES, *others):
        number = day.ended.get(status, 0)
        if number:
            yield Value(_TONES.get(status, "rest"), number, f"{day.day}: {number} {status}")


def _bars(columns: Sequence[Sequence[Value]], most: float | None = None) -> list[Part]:
    """Draws the columns; the highest one, or `most`, is as high as the chart."""
    top = most or max((sum(one.amount for one in some) for some in columns), default=0) or 1
    step = WIDTH / max(1, len(columns))
    found = []
    for number, column in enumerate(columns):
        height = 0.0
        for one in column:
            part = HEIGHT * one.amount / top
            height += part
            found.append(
                Part(
                    x=round(step * (number + 0.1), 2),
                    y=round(HEIGHT - height, 2),
                    width=round(step * 0.8, 2),
                    height=round(part, 2),
                    tone=one.tone,
                    text=one.text,
                )
            )
    return found
