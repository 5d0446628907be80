"""Serves the probes of liveness and readiness, which need no token."""

from __future__ import annotations

from flask import Response, request

from api.responses import answer
from api.serving import Call, current_api, serves
from app.engine import Engine
from leadhand.contract import fleet
from leadhand.contract.fleet import Health
from leadhand.models.api_proof import NONCE_HEADER, PROOF_HEADER, is_nonce, proof_of


@serves(fleet.ALIVE)
def alive(_engine: Engine, _call: Call, _: None) -> Response:
    """Says that the process is alive, and proves that it is this fleet's."""
    response, settings = answer(Health(status="alive")), current_api().settings
    nonce = request.headers.get(NONCE_HEADER, "")
    if settings.proof_key and is_nonce(nonce):
        port = int(settings.api_bind.rpartition(":")[2])
        response.headers[PROOF_HEADER] = proof_of(settings.proof_key, port, nonce)
    return response


@serves(fleet.READY)
def ready(engine: Engine, _call: Call, _: None) -> Health:
    """Says that the store can be reached and is the expected one."""
    engine.store.ping()
    engine.guard.check()
    return Health(status="ready")
