"""Economics: what ended, what was accepted, and what it cost, with charts."""

from __future__ import annotations

from datetime import timedelta

from flask import Blueprint, Response, request

from api.dashboard.charts import HEIGHT, WIDTH, cost_by_day, ends_by_day, share_by_iteration, shares
from api.dashboard.render import page
from api.serving import Call, carry_out
from app.engine import Engine
from app.fleet.overview import today
from leadhand.contract import fleet
from leadhand.models.views.fleet import StatisticsView

#: The periods that the page offers, in days.
PERIODS = (7, 30, 90, 365)


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page with costs and counts per day."""

    def economics() -> Response:
        days = request.args.get("days", PERIODS[0], type=int)
        days = days if days in PERIODS else PERIODS[0]
        last = today()
        period = fleet.StatisticsQuery(first=last - timedelta(days=days - 1), last=last)
        view = carry_out(engine, fleet.STATISTICS, Call({}, period, None), period)
        assert isinstance(view, StatisticsView)
        accepted = shares(view.acceptance)
        completed = [row for row in view.sessions if row.status == "completed"]
        return page(
            "economics.html", found=view, days=days, periods=PERIODS, width=WIDTH, height=HEIGHT,
            ends=ends_by_day(view), costs=cost_by_day(view), shares=accepted,
            share_bars=share_by_iteration(accepted),
            ended=sum(row.count for row in view.sessions),
            completed=sum(row.count for row in completed),
            completed_s=sum(row.seconds for row in completed),
            cost=sum(row.cost_usd for row in view.usage),
        )  # fmt: skip

    routes.add_url_rule("/economics", "economics", economics)
