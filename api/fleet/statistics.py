"""REST route of statistics."""

from __future__ import annotations

from datetime import date, timedelta

from flask import Blueprint, Response

from api import requests
from api.problem_types import invalid
from api.responses import answer
from app.engine import Engine
from app.queries.statistics import MOST_DAYS, today
from leadhand.models.problems import FieldProblem

#: The period without parameters, in days.
DEFAULT_DAYS = 7


class StatisticsQuery(requests.Query):
    """A period of days by UTC, both included: the last seven unless given."""

    #: The first day, such as 2026-11-01; six days before the last one unless given.
    first: requests.Day | None = None
    #: The last day; today unless given.
    last: requests.Day | None = None

    def period(self) -> tuple[date, date]:
        """Returns the first and the last day. Raises Refused if reversed or too far apart."""
        last = self.last or today()
        first = self.first or last - timedelta(days=DEFAULT_DAYS - 1)
        if first > last:
            raise _refuse("first", first, f"it is after the last day, {last}; give an earlier one")
        if (last - first).days >= MOST_DAYS:
            raise _refuse("first", first, f"give a period of at most {MOST_DAYS} days")
        return first, last


def _refuse(field: str, value: date, message: str) -> Exception:
    problem = FieldProblem(field=field, message=message, place="query", value=str(value))
    return invalid((problem,))


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the route of statistics."""
    routes = Blueprint("statistics", __name__)

    def statistics() -> Response:
        """GET /v1/statistics: counts and sums of a period."""
        return answer(engine.statistics.of(*requests.query(StatisticsQuery).period()))

    routes.add_url_rule("/v1/statistics", "of_period", statistics)
    return routes
