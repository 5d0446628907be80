"""Liveness and readiness probes, without a token."""

from __future__ import annotations

from typing import Literal

from flask import Blueprint, Response, request
from pydantic import BaseModel

from api.responses import answer
from app.engine import Engine
from app.settings import Settings
from leadhand.models.api_proof import NONCE_HEADER, PROOF_HEADER, is_nonce, proof_of


class Health(BaseModel):
    status: Literal["alive", "ready"]


def blueprint(engine: Engine, settings: Settings) -> Blueprint:
    """Returns the Flask blueprint with the liveness and readiness probes, which need no token."""
    routes = Blueprint("health", __name__)

    def alive() -> Response:
        response = answer(Health(status="alive"))
        nonce = request.headers.get(NONCE_HEADER, "")
        if settings.proof_key and is_nonce(nonce):
            port = int(settings.api_bind.rpartition(":")[2])
            response.headers[PROOF_HEADER] = proof_of(settings.proof_key, port, nonce)
        return response

    def ready() -> Response:
        engine.store.ping()
        engine.guard.check()
        return answer(Health(status="ready"))

    routes.add_url_rule("/healthz", "alive", alive)
    routes.add_url_rule("/readyz", "ready", ready)
    return routes
