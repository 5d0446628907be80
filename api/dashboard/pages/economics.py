"""Economics: what ended, what was accepted, and what it cost, with a chart by day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

from flask import Blueprint, Response, request

from api.dashboard.render import page
from app.engine import Engine
from app.queries.statistics import today
from leadhand.models.views import DayCount, StatisticsView

#: The periods that the page offers, in days.
PERIODS = (7, 30, 90, 365)
#: The size of the chart, in its own units.
WIDTH, HEIGHT = 720, 120
#: Statuses with a colour of their own, from the bottom of a bar; the others are above them.
_TONES = {"completed": "good", "failed": "bad"}


class Part(NamedTuple):
    """A part of a day's bar: a rectangle with a tone and a text."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    text: str


def bars(view: StatisticsView) -> Iterator[Part]:
    """Yields the bars of a chart with one bar per day, the first day on the left."""
    first, last = date.fromisoformat(view.first), date.fromisoformat(view.last)
    by_day = {one.day: one for one in view.days}
    days = [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]
    most = max((sum(one.ended.values()) for one in view.days), default=0) or 1
    step = WIDTH / len(days)
    for number, day in enumerate(days):
        height = 0.0
        for tone, count, word in _parts(by_day.get(day, DayCount(day=day))):
            part = HEIGHT * count / most
            height += part
            yield Part(
                x=round(step * (number + 0.1), 2),
                y=round(HEIGHT - height, 2),
                width=round(step * 0.8, 2),
                height=round(part, 2),
                tone=tone,
                text=f"{day}: {count} {word}",
            )


def _parts(day: DayCount) -> Iterator[tuple[str, int, str]]:
    """The counts of a day from the bottom of its bar: tone, count and status."""
    for status, tone in _TONES.items():
        if day.ended.get(status):
            yield tone, day.ended[status], status
    for status, count in sorted(day.ended.items()):
        if status not in _TONES:
            yield "rest", count, status


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page with costs and counts per day."""

    def economics() -> Response:
        days = request.args.get("days", PERIODS[0], type=int)
        days = days if days in PERIODS else PERIODS[0]
        last = today()
        view = engine.statistics.of(last - timedelta(days=days - 1), last)
        ended = sum(row.count for row in view.sessions)
        completed = sum(row.count for row in view.sessions if row.status == "completed")
        return page(
            "economics.html", found=view, days=days, periods=PERIODS, bars=list(bars(view)),
            width=WIDTH, height=HEIGHT, ended=ended, completed=completed,
            cost=sum(row.cost_usd for row in view.usage),
        )  # fmt: skip

    routes.add_url_rule("/economics", "economics", economics)
