"""Whether this process is alive, and whether it can be sent work: both without a token."""

from __future__ import annotations

from typing import Literal

from flask import Blueprint, Response
from pydantic import BaseModel

from api.answers import answer
from api.port import Engine


class Health(BaseModel):
    status: Literal["alive", "ready"]


def blueprint(engine: Engine) -> Blueprint:
    routes = Blueprint("health", __name__)

    def alive() -> Response:
        return answer(Health(status="alive"))

    def ready() -> Response:
        engine.ping()
        return answer(Health(status="ready"))

    routes.add_url_rule("/healthz", "alive", alive)
    routes.add_url_rule("/readyz", "ready", ready)
    return routes
