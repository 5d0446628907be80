"""Answers every error with a problem (RFC 9457) that tells no more than its reader may know."""

from __future__ import annotations

import logging

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from api.fields import shortened
from api.refusals import RETRY_AFTER_S, Refused, forbidden, invalid, problem
from api.request_log import request_id
from app.errors import (
    AnswerUnwanted,
    CapabilityRefused,
    ControlRefused,
    FlowDisabled,
    FlowUnknown,
    IdempotencyConflict,
    InvalidDocument,
    LeadhandError,
    LimitChanged,
    LimitUnknown,
    ProgramNewer,
    QuotaPassed,
    ReferenceUnresolved,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
    StoreAway,
    StoreFull,
    TokenUnknown,
)
from leadhand.problems import MEDIA_TYPE, FieldProblem, Kind

log = logging.getLogger("leadhand.api")

#: Of what Flask refuses, the headers that say how to do better.
_KEPT_HEADERS = {"Allow", "Retry-After"}


def install(flask: Flask) -> None:
    """Let every error of this application be answered with a problem."""
    flask.register_error_handler(Exception, _answer)


def refusal_of(error: Exception) -> Refused:
    """What the sender is told of this error."""
    match error:
        case Refused():
            return error
        case HTTPException():
            return _of_http(error)
        case LeadhandError():
            return _of_ours(error) or _internal(error)
        case _:
            return _internal(error)


def _answer(error: Exception) -> Response:
    refusal = refusal_of(error)
    told = refusal.problem.model_copy(update={"request_id": request_id()})
    response = Response(told.model_dump_json(exclude_none=True), told.status)
    response.headers["Content-Type"] = MEDIA_TYPE
    response.headers.update(refusal.headers)
    return response


def _of_ours(error: LeadhandError) -> Refused | None:
    return _of_session(error) or _of_limit(error) or _of_document(error) or _of_token(error)


def _of_limit(error: LeadhandError) -> Refused | None:
    match error:
        case LimitChanged():
            return Refused(problem(Kind.LIMIT_CHANGED, 412, str(error), hint="read it again"))
        case LimitUnknown():
            return Refused(problem(Kind.LIMIT_UNKNOWN, 404, str(error)))
        case _:
            return None


def _of_session(error: LeadhandError) -> Refused | None:
    text = str(error)
    match error:
        case SessionUnknown():
            return Refused(problem(Kind.SESSION_UNKNOWN, 404, text))
        case SessionStillRuns(status=status):
            told = problem(Kind.SESSION_STILL_RUNS, 409, text)
            return Refused(told.model_copy(update={"session_status": status}))
        case ControlRefused(status=status, hint=hint):
            told = problem(Kind.CONTROL_REFUSED, 409, text, hint=hint or None)
            return Refused(told.model_copy(update={"session_status": status}))
        case SessionChanged(status=status):
            told = problem(Kind.SESSION_CHANGED, 412, text, hint="read it again")
            return Refused(told.model_copy(update={"session_status": status}))
        case ProgramNewer():
            told = problem(Kind.PROGRAM_NEWER, 503, text, hint="come again, or upgrade this API")
            return Refused(told, {"Retry-After": str(RETRY_AFTER_S)})
        case StoreAway():
            # The address of Redis is for the log, not for the sender.
            log.warning("store away", extra={"store": error.url})
            why = "is full" if isinstance(error, StoreFull) else "does not answer"
            told = problem(Kind.STORE_AWAY, 503, f"Redis {why}; nothing was lost")
            return Refused(told, {"Retry-After": str(RETRY_AFTER_S)})
        case _:
            return None


def _of_token(error: LeadhandError) -> Refused | None:
    match error:
        case CapabilityRefused():
            return forbidden(str(error))
        case TokenUnknown():
            return Refused(problem(Kind.TOKEN_UNKNOWN, 404, str(error)))
        case QuotaPassed(retry_after_s=retry_after_s):
            hint = "wait for sessions to end" if retry_after_s is None else "go on tomorrow (UTC)"
            told = problem(Kind.QUOTA_PASSED, 429, str(error), hint=hint)
            wait = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
            return Refused(told, wait)
        case _:
            return None


def _of_document(error: LeadhandError) -> Refused | None:
    match error:
        case FlowUnknown():
            return Refused(problem(Kind.FLOW_UNKNOWN, 404, str(error)))
        case FlowDisabled():
            return Refused(problem(Kind.FLOW_DISABLED, 409, str(error), hint="mend the file"))
        case AnswerUnwanted():
            return Refused(problem(Kind.ANSWER_UNWANTED, 409, str(error)))
        case IdempotencyConflict():
            told = problem(Kind.IDEMPOTENCY_CONFLICT, 422, str(error), hint="use a new key")
            return Refused(told.model_copy(update={"field": "Idempotency-Key"}))
        case InvalidDocument(field=field, hint=hint):
            value = shortened(error.value, field=field)
            return invalid((FieldProblem(field=field, value=value, message=hint, hint=hint),))
        case ReferenceUnresolved(reference=reference, address=address):
            message = "it names no node that can be seen from there"
            return invalid((FieldProblem(field=address, value=reference, message=message),))
        case _:
            return None


def _of_http(error: HTTPException) -> Refused:
    """What Flask itself refuses: no such path, no such method, too large."""
    status = error.code or 500
    if status >= 500:
        return _internal(error)
    kept = {name: value for name, value in error.get_headers() if name in _KEPT_HEADERS}
    hint = f"use one of: {kept['Allow']}" if "Allow" in kept else None
    return Refused(problem(Kind.BLANK, status, error.description or "", hint=hint), kept)


def _internal(error: Exception) -> Refused:
    log.error("request failed", exc_info=error)
    detail = "the fault is ours; the server's log has it under this request_id"
    return Refused(problem(Kind.INTERNAL, 500, detail))
