"""The fleet over HTTP: queues, and everything at one glance; and as Prometheus reads it."""

from __future__ import annotations

from flask import Blueprint, Response

from api import bodies
from api.answers import answer
from api.exposition import MEDIA_TYPE, exposed
from api.metrics import families
from api.port import Engine
from app.views import Page, QueueView


def blueprint(engine: Engine) -> Blueprint:
    routes = Blueprint("fleet", __name__)

    def queues() -> Response:
        bodies.query(bodies.NoQuery)
        return answer(Page[QueueView](items=engine.watch.queues()))

    def fleet() -> Response:
        bodies.query(bodies.NoQuery)
        return answer(engine.watch.fleet())

    def metrics() -> Response:
        bodies.query(bodies.NoQuery)
        text = exposed(families(engine.watch.fleet(), engine.watch.lately()))
        return Response(text, content_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    routes.add_url_rule("/v1/queues", "queues", queues)
    routes.add_url_rule("/v1/fleet", "fleet", fleet)
    routes.add_url_rule("/metrics", "metrics", metrics)
    return routes
