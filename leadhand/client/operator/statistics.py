"""The call about statistics (pure)."""

from __future__ import annotations

from datetime import date

from leadhand.client.calls import Call
from leadhand.client.requests import Ask, parsed
from leadhand.models.views import StatisticsView


def of_period(first: date | None, last: date | None) -> Ask[StatisticsView]:
    """Builds the request for the statistics of the days from `first` to `last`, with its parser."""
    days = {"first": first, "last": last}
    params = {name: day.isoformat() for name, day in days.items() if day is not None}
    call = Call("GET", "/v1/statistics", params=params)
    return Ask(call, lambda answer: parsed(StatisticsView, answer.checked()))
