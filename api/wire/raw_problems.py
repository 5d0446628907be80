"""Problems that are sent before there is a request: whole HTTP responses, as bytes."""

from __future__ import annotations

from http import HTTPStatus

from api.problem_types import RETRY_AFTER_S, malformed, refuse_by_status
from api.requests import MAX_BODY_BYTES
from api.wire.framing import MAX_HEAD_BYTES
from leadhand.models.problems import MEDIA_TYPE, Problem

#: Characters of what the parser says, which quotes the request.
_WHY_LENGTH = 200


def _response(status: int, detail: str, hint: str, *headers: str) -> bytes:
    return _bytes_of(refuse_by_status(status, detail, hint=hint).problem, *headers)


def _bytes_of(problem: Problem, *headers: str) -> bytes:
    body = problem.model_dump_json(exclude_none=True)
    lines = [
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body.encode())}",
        "Connection: close",
        *headers,
        "",
        body,
    ]
    return "\r\n".join(lines).encode()


def unparsable(status: int, why: str) -> bytes:
    """Returns the response to a request that gunicorn cannot parse, or that broke the server."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _bytes_of(refuse_by_status(status, "the request cannot be served").problem)
    detail = f"the request is not valid HTTP/1.1: {why[:_WHY_LENGTH]}"
    if status == HTTPStatus.BAD_REQUEST:
        return _bytes_of(malformed(detail).problem)
    return _bytes_of(refuse_by_status(status, detail).problem)


HEAD_LATE = _response(
    408, "the head of the request was not complete in time", "send the request without pauses"
)
BODY_LATE = _response(
    408, "the body of the request was not complete in time", "send the request without pauses"
)
HEAD_TOO_LONG = _response(
    431, f"the head of the request is longer than {MAX_HEAD_BYTES} bytes", "send fewer headers"
)
BODY_TOO_LONG = _response(
    413, f"the chunks of the body hold more than {MAX_BODY_BYTES} bytes", "send larger chunks"
)
BUSY = _response(
    503,
    "too many requests are half received",
    "try again soon",
    f"Retry-After: {RETRY_AFTER_S}",
)
