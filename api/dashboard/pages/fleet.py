"""The fleet: workers with what each runs, queues, and overdue work."""

from __future__ import annotations

from itertools import groupby

from flask import Blueprint, Response

from api.dashboard.render import page
from app.engine import Engine


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page of workers, queues, agents and tools."""

    def values() -> dict[str, object]:
        found = engine.fleet.overview()
        workers = sorted(found.workers, key=lambda one: (one.place, one.name))
        places = [(place, list(some)) for place, some in groupby(workers, lambda one: one.place)]
        return {"fleet": found, "places": places}

    def fleet() -> Response:
        return page("fleet.html", values())

    def fleet_panel() -> Response:
        return page("fleet_panel.html", values())

    routes.add_url_rule("/fleet", "fleet", fleet)
    routes.add_url_rule("/panels/fleet", "fleet_panel", fleet_panel)
