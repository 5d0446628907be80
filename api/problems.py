"""Converts errors to problem responses (RFC 9457), without internal details."""

from __future__ import annotations

import logging

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from api import store
from api.request_log import request_id
from app.engine import Engine
from leadhand.errors import (
    InternalFault,
    LeadhandError,
    Refused,
    SchemaDiffers,
    SecretDiffers,
    StoreAway,
    StoreUnknown,
    of_status,
)
from leadhand.models.problems import MEDIA_TYPE

log = logging.getLogger("leadhand.api")

#: Headers of Flask's refusals that are kept.
_KEPT_HEADERS = {"Allow", "Retry-After"}


def install(flask: Flask, engine: Engine) -> None:
    """Registers the handler that converts exceptions to problem+json responses."""

    def answer(error: Exception) -> Response:
        try:
            store.check_unknown(engine, error)
        except LeadhandError as other:
            return _answer(other)
        return _answer(error)

    flask.register_error_handler(Exception, answer)


def refusal_of(error: Exception) -> Refused:
    """Converts an exception to the error that the API sends; logs those that need an operator."""
    if isinstance(error, SchemaDiffers | SecretDiffers):
        log.critical("%s", error)
    elif isinstance(error, StoreAway) and not isinstance(error, StoreUnknown):
        log.warning("store away", extra={"store": error.url, "why": str(error)})
    match error:
        case Refused():
            return error
        case HTTPException() if (error.code or 500) < 500:
            return _of_http(error, error.code or 500)
        case _:
            log.error("request failed", exc_info=error)
            return InternalFault()


def _answer(error: Exception) -> Response:
    refusal = refusal_of(error)
    problem = refusal.problem.model_copy(update={"request_id": request_id()})
    response = Response(problem.model_dump_json(exclude_none=True), problem.status)
    response.headers["Content-Type"] = MEDIA_TYPE
    response.headers.update(refusal.headers)
    return response


def _of_http(error: HTTPException, status: int) -> Refused:
    """The refusal for an HTTP error of Flask: unknown path or method, too large."""
    headers = {name: value for name, value in error.get_headers() if name in _KEPT_HEADERS}
    hint = f"use one of: {headers['Allow']}" if "Allow" in headers else None
    return of_status(status, error.description or "", hint=hint, headers=headers)
