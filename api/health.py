"""Liveness and readiness probes, without a token."""

from __future__ import annotations

from typing import Literal

from flask import Blueprint, Response
from pydantic import BaseModel

from api.responses import answer
from app.engine import Engine


class Health(BaseModel):
    status: Literal["alive", "ready"]


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes that report whether the process is ready."""
    routes = Blueprint("health", __name__)

    def alive() -> Response:
        return answer(Health(status="alive"))

    def ready() -> Response:
        engine.store.ping()
        engine.guard.check()
        return answer(Health(status="ready"))

    routes.add_url_rule("/healthz", "alive", alive)
    routes.add_url_rule("/readyz", "ready", ready)
    return routes
