"""One line of JSON for each request: ids and times, never what was sent."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from datetime import UTC, datetime

from flask import Flask, Response, g, has_request_context, request

log = logging.getLogger("leadhand.api")

HEADER = "X-Request-ID"
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
#: What a record holds without our doing; all else was given as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as one line of JSON, its fields beside its message."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if has_request_context():
            told["request_id"] = request_id()
        told |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str, ensure_ascii=False)


def install(flask: Flask) -> None:
    """Give every request an id, and a line in the log when it is answered."""
    flask.before_request(_begin)
    flask.after_request(_tell)


def request_id() -> str:
    """The id of this request: the sender's own, where it is fit to be written down."""
    if "request_id" not in g:
        given = request.headers.get(HEADER, "")
        g.request_id = given if _ID.fullmatch(given) else uuid.uuid4().hex
    found: str = g.request_id
    return found


def _begin() -> None:
    g.begun_s = time.monotonic()


def _tell(response: Response) -> Response:
    response.headers[HEADER] = request_id()
    since_s = g.get("begun_s")
    log.info(
        "request",
        extra={
            "method": request.method,
            "path": request.path[:200],
            "status": response.status_code,
            "session": (request.view_args or {}).get("session"),
            "ms": None if since_s is None else round((time.monotonic() - since_s) * 1000, 1),
        },
    )
    return response
