"""The worker hosts over HTTP."""

from __future__ import annotations

from flask import Blueprint, Response

from api import bodies
from api.answers import answer
from api.port import Engine
from app.views import Page, WorkerView


def blueprint(engine: Engine) -> Blueprint:
    routes = Blueprint("workers", __name__, url_prefix="/v1/workers")

    def listed() -> Response:
        bodies.query(bodies.NoQuery)
        return answer(Page[WorkerView](items=engine.watch.workers()))

    routes.add_url_rule("", "listed", listed)
    return routes
