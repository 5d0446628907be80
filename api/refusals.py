"""What a request can be refused for, each with what its sender is told."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from leadhand.problems import FieldProblem, Kind, Problem

#: When to ask again while Redis is away or all streams are taken.
RETRY_AFTER_S = 2


class Refused(Exception):
    """A request that goes no further."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem, headers)
        self.problem = problem
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return str(self.problem)


def problem(kind: Kind, status: int, detail: str, *, hint: str | None = None) -> Problem:
    """A problem with the title that its kind, or its status, goes by."""
    title = _TITLES.get(kind) or HTTPStatus(status).phrase
    return Problem(type=kind.uri, title=title, status=status, detail=detail, hint=hint)


def malformed(detail: str, *, field: str | None = None, hint: str | None = None) -> Refused:
    """The envelope cannot be read: a header, or text that is no JSON."""
    told = problem(Kind.MALFORMED, 400, detail, hint=hint)
    return Refused(told.model_copy(update={"field": field}))


def invalid(errors: tuple[FieldProblem, ...]) -> Refused:
    """What the envelope holds is not valid; each field is named."""
    first = errors[0]
    detail = f"{first.field or 'the document'}: {first.message}"
    if len(errors) > 1:
        detail += f" (and {len(errors) - 1} more, see errors)"
    told = problem(Kind.INVALID, 422, detail, hint=first.hint)
    seen = {"field": first.field, "value": first.value, "errors": errors}
    return Refused(told.model_copy(update=seen))


def unauthenticated() -> Refused:
    """No token was sent."""
    hint = "send the header 'Authorization: Bearer <token>'"
    told = problem(Kind.UNAUTHENTICATED, 401, "no bearer token was sent", hint=hint)
    return Refused(told, {"WWW-Authenticate": 'Bearer realm="leadhand"'})


def not_admitted(why: str) -> Refused:
    """A token that opens nothing here, or no longer."""
    told = problem(Kind.UNAUTHENTICATED, 401, why)
    return Refused(told, {"WWW-Authenticate": 'Bearer realm="leadhand", error="invalid_token"'})


def forbidden(detail: str, *, hint: str | None = None) -> Refused:
    """The token is ours and does not grant this."""
    return Refused(problem(Kind.FORBIDDEN, 403, detail, hint=hint))


def wrong_media_type(given: str) -> Refused:
    """The body is not JSON by its own word."""
    detail = f"the body is {given!r}" if given else "the body does not say what it is"
    hint = "send the header 'Content-Type: application/json'"
    return Refused(problem(Kind.BLANK, 415, detail, hint=hint))


def too_many_streams(limit: int) -> Refused:
    """As many event streams are open as one process can serve."""
    detail = f"{limit} event streams are open, as many as one process serves"
    hint = "try again soon, or read the events in pages without 'Accept: text/event-stream'"
    told = problem(Kind.TOO_MANY_STREAMS, 503, detail, hint=hint)
    return Refused(told, {"Retry-After": str(RETRY_AFTER_S)})


_TITLES = {
    Kind.MALFORMED: "The request cannot be read",
    Kind.INVALID: "A field is not valid",
    Kind.IDEMPOTENCY_CONFLICT: "The Idempotency-Key was used for another body",
    Kind.UNAUTHENTICATED: "A token is needed",
    Kind.FORBIDDEN: "The token does not grant this",
    Kind.SESSION_UNKNOWN: "No such session",
    Kind.SESSION_STILL_RUNS: "The session has not ended",
    Kind.CONTROL_REFUSED: "The session's status does not allow this",
    Kind.FLOW_UNKNOWN: "No such flow",
    Kind.FLOW_DISABLED: "The flow's file is broken",
    Kind.ANSWER_UNWANTED: "No step waits for this answer",
    Kind.TOKEN_UNKNOWN: "No such token",
    Kind.QUOTA_PASSED: "The token's quota is used up",
    Kind.SESSION_CHANGED: "The session has changed since it was read",
    Kind.LIMIT_CHANGED: "The limit has changed since it was read",
    Kind.LIMIT_UNKNOWN: "No such limit",
    Kind.STORE_AWAY: "Redis does not answer",
    Kind.PROGRAM_NEWER: "A newer version is needed to read this",
    Kind.TOO_MANY_STREAMS: "Too many event streams",
    Kind.INTERNAL: "Our own fault",
}
