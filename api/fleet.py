"""The fleet over HTTP: queues, and everything at one glance; and as Prometheus reads it."""

from __future__ import annotations

from typing import Annotated

from flask import Blueprint, Response
from pydantic import Field

from api import bodies
from api.answers import answer
from api.exposition import MEDIA_TYPE, exposed
from api.metrics import families
from api.port import Engine
from app.views import Page, QueueView


class FsckBody(bodies.Body):
    """Whether what is found is mended, and where an audit goes on."""

    repair: bool = False
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] | None = None


def blueprint(engine: Engine) -> Blueprint:
    routes = Blueprint("fleet", __name__)

    def queues() -> Response:
        bodies.query(bodies.NoQuery)
        return answer(Page[QueueView](items=engine.watch.queues()))

    def fleet() -> Response:
        bodies.query(bodies.NoQuery)
        return answer(engine.watch.fleet())

    def fsck() -> Response:
        bodies.query(bodies.NoQuery)
        asked = bodies.body(FsckBody)
        return answer(engine.fsck(cursor=asked.cursor, repair=asked.repair))

    def metrics() -> Response:
        bodies.query(bodies.NoQuery)
        text = exposed(families(engine.watch.fleet(), engine.watch.lately()))
        return Response(text, content_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    routes.add_url_rule("/v1/queues", "queues", queues)
    routes.add_url_rule("/v1/fleet", "fleet", fleet)
    routes.add_url_rule("/v1/fsck", "fsck", fsck, methods=["POST"])
    routes.add_url_rule("/metrics", "metrics", metrics)
    return routes
