"""Logs one line per request: ids and times, no content."""

from __future__ import annotations

import logging
import re
import time
import uuid

from flask import Flask, Response, g, request

from app import logs

log = logging.getLogger("leadhand.api")

HEADER = "X-Request-ID"
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def install(flask: Flask) -> None:
    """Registers functions that assign an id to every request and log it when it ends."""
    flask.before_request(_begin)
    flask.after_request(_log_request)
    flask.teardown_request(lambda _: logs.begin())


def request_id() -> str:
    """Returns the id of this request: the client's own if it is valid, else a new one."""
    if "request_id" not in g:
        given = request.headers.get(HEADER, "")
        g.request_id = given if _ID.fullmatch(given) else uuid.uuid4().hex
    found: str = g.request_id
    return found


def _begin() -> None:
    g.begun_s = time.monotonic()
    session = (request.view_args or {}).get("session")
    logs.begin(request_id=request_id(), **({"session": session} if session else {}))


def _log_request(response: Response) -> Response:
    response.headers[HEADER] = request_id()
    since_s = g.get("begun_s")
    log.info(
        "request",
        extra={
            "method": request.method,
            "path": request.path[:200],
            "status": response.status_code,
            "by": g.get("by"),
            "ms": None if since_s is None else round((time.monotonic() - since_s) * 1000, 1),
        },
    )
    return response
