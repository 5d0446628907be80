"""Converts errors to problem responses (RFC 9457), without internal details."""

from __future__ import annotations

import logging

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from api import store
from api.problem_types import Refused, invalid, refuse, refuse_by_status
from api.request_log import request_id
from api.validation_errors import shortened
from app.domain.answer_errors import AnswerUnfit
from app.domain.plan_errors import PlanRefused
from app.domain.shared_errors import SharedRefusal
from app.engine import Engine
from app.errors import (
    ControlRefused,
    FlowDisabled,
    IdempotencyConflict,
    InvalidDocument,
    LabelTaken,
    LeadhandError,
    ParentRests,
    QuotaPassed,
    ReferenceUnresolved,
    SchemaDiffers,
    SecretDiffers,
    SessionChanged,
    SessionStillRuns,
    StoreAway,
    StoreForbids,
    StoreFull,
    StoreReadOnly,
    StoreUnfit,
    StoreUnknown,
)
from leadhand.models.form_answers import Unfit
from leadhand.models.problems import MEDIA_TYPE, FieldProblem, Kind, Problem
from leadhand.models.validation_messages import NAMED

log = logging.getLogger("leadhand.api")

#: Headers of Flask's refusals that are kept.
_KEPT_HEADERS = {"Allow", "Retry-After"}
_PARENT_RESTS = "the attempt that starts this child has ended, or its session stops"


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
    """Converts an exception to the error response that the API sends."""
    match error:
        case Refused():
            return error
        case HTTPException():
            return _of_http(error)
        case LeadhandError():
            return _of_core(error) or _internal(error)
        case _:
            return _internal(error)


def _answer(error: Exception) -> Response:
    refusal = refusal_of(error)
    problem = refusal.problem.model_copy(update={"request_id": request_id()})
    response = Response(problem.model_dump_json(exclude_none=True), problem.status)
    response.headers["Content-Type"] = MEDIA_TYPE
    response.headers.update(refusal.headers)
    return response


def _of_core(error: LeadhandError) -> Refused | None:
    """The refusal for an error of the core; None for a server error."""
    match error:
        case ParentRests():
            return refuse(Kind.CONTROL_REFUSED, _PARENT_RESTS)
        case InvalidDocument():
            return invalid(tuple(map(field_problem, error.all[:NAMED])))
        case AnswerUnfit() | ReferenceUnresolved():
            return _of_fields(error)
        case StoreAway() | SchemaDiffers() | SecretDiffers():
            return _of_store(error)
        case QuotaPassed(retry_after_s=int() as retry_after_s):
            refusal = refuse(Kind.QUOTA_PASSED, str(error), hint="continue tomorrow (UTC)")
            return Refused(refusal.problem, {"Retry-After": str(retry_after_s)})
        case LabelTaken() | IdempotencyConflict():
            field = "label" if isinstance(error, LabelTaken) else "Idempotency-Key"
            return refuse(error.kind, str(error), field=field)
        case PlanRefused(operation=int() as number):
            field = f"operations.{number - 1}"
            return refuse(Kind.PLAN_REFUSED, str(error), field=field)
        case _:
            return _of_kind(error)


def field_problem(error: InvalidDocument) -> FieldProblem:
    """Converts the error of one field to the API's form."""
    value = shortened(error.value, field=error.field)
    return FieldProblem(field=error.field, value=value, message=error.hint, hint=error.hint)


def _of_fields(error: AnswerUnfit | ReferenceUnresolved) -> Refused:
    match error:
        case AnswerUnfit(unfit=unfit):
            return invalid(tuple(_of_unfit(one) for one in unfit[:NAMED]))
        case ReferenceUnresolved(reference=reference, address=address):
            message = "it names no node that is visible from there"
            return invalid((FieldProblem(field=address, value=reference, message=message),))


def _of_unfit(one: Unfit) -> FieldProblem:
    value = None if one.value is None else shortened(one.value, field=one.field)
    return FieldProblem(field=one.field, value=value, message=one.message, hint=one.hint)


def _of_store(error: StoreAway | SchemaDiffers | SecretDiffers) -> Refused:
    """The refusal while the store is unavailable; only the log has the store's URL."""
    match error:
        case SchemaDiffers():
            log.critical("%s", error)
            return Refused(Problem.of(Kind.STORE_AWAY, str(error)))
        case SecretDiffers():
            log.critical("%s", error)
            problem = Problem.of(Kind.STORE_AWAY, "the API's secret differs from its fleet's")
            return Refused(problem)  # it waits for an operator, so there is no Retry-After
        case StoreUnknown(what=what, hint=hint):
            return Refused(Problem.of(Kind.STORE_UNKNOWN, f"Redis {what}", hint=hint))
        case _:
            log.warning("store away", extra={"store": error.url, "why": str(error)})
            return refuse(Kind.STORE_AWAY, f"Redis {_why(error)}; nothing was lost")


def _why(error: StoreAway) -> str:
    match error:
        case StoreFull():
            return "is full"
        case StoreReadOnly():
            return "cannot write to its disk: make room there"
        case StoreForbids(setting=setting):
            return f"refuses the user or password of the API's {setting}"
        case StoreUnfit(setting=setting):
            return f"of the API's {setting} has to be changed, as the API's log says"
        case _:
            return "does not answer"


def _of_kind(error: LeadhandError) -> Refused | None:
    """The refusal for the error's problem type; None for a server error."""
    if error.kind is None:
        return None
    hint = error.hint if isinstance(error, ControlRefused | FlowDisabled) else None
    refusal = refuse(error.kind, str(error), hint=hint)
    if isinstance(error, SharedRefusal):
        named = {"field": error.field, "value": error.value, "hint": error.hint}
        return Refused(refusal.problem.model_copy(update=named), refusal.headers)
    if isinstance(error, SessionStillRuns | ControlRefused | SessionChanged):
        seen = refusal.problem.model_copy(update={"session_status": error.status})
        return Refused(seen, refusal.headers)
    return refusal


def _of_http(error: HTTPException) -> Refused:
    """The refusal for an HTTP error of Flask: unknown path or method, too large."""
    status = error.code or 500
    if status >= 500:
        return _internal(error)
    headers = {name: value for name, value in error.get_headers() if name in _KEPT_HEADERS}
    hint = f"use one of: {headers['Allow']}" if "Allow" in headers else None
    return refuse_by_status(status, error.description or "", hint=hint, headers=headers)


def _internal(error: Exception) -> Refused:
    log.error("request failed", exc_info=error)
    detail = "internal error; the server's log has it under this request_id"
    return refuse(Kind.INTERNAL, detail)
