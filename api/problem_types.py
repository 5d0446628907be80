"""Constructors of refusals: each kind of problem with its status, detail and hint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from leadhand.models.etags import plan_etag
from leadhand.models.problems import FieldProblem, Kind, Problem
from leadhand.models.suggestions import listed, nearest
from leadhand.models.views.plan import PlanView

#: Retry-After while Redis is unreachable or all streams are in use.
RETRY_AFTER_S = 2


class Refused(Exception):
    """A refused request, with its problem response."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem, headers)
        self.problem = problem
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return str(self.problem)


def refuse(
    kind: Kind, detail: str, *, hint: str | None = None, field: str | None = None
) -> Refused:
    """Builds the error response for a type of problem, with its status, title and hint."""
    problem = Problem.of(kind, detail, hint=hint, field=field)
    retry = {"Retry-After": str(RETRY_AFTER_S)} if problem.status == 503 else None
    return Refused(problem, retry)


def refuse_by_status(
    status: int, detail: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None
) -> Refused:
    """Builds an error response without a problem type, such as for an unknown path."""
    title = HTTPStatus(status).phrase
    return Refused(Problem(title=title, status=status, detail=detail, hint=hint), headers)


def malformed(detail: str, *, field: str | None = None, hint: str | None = None) -> Refused:
    """Builds the error for a request whose header or JSON cannot be parsed."""
    return refuse(Kind.MALFORMED, detail, hint=hint, field=field)


def invalid(errors: tuple[FieldProblem, ...]) -> Refused:
    """Builds the error for a request with invalid fields; each is named."""
    first = errors[0]
    detail = f"{first.field or 'the document'}: {first.message}"
    if len(errors) > 1:
        detail += f" (and {len(errors) - 1} more, see errors)"
    problem = Problem.of(Kind.INVALID, detail, hint=first.hint, field=first.field)
    return Refused(problem.model_copy(update={"value": first.value, "errors": errors}))


def unauthenticated() -> Refused:
    """Builds the error for a request without a token."""
    hint = "send the header 'Authorization: Bearer <token>'"
    problem = Problem.of(Kind.UNAUTHENTICATED, "no bearer token was sent", hint=hint)
    return Refused(problem, {"WWW-Authenticate": 'Bearer realm="leadhand"'})


def not_admitted(why: str) -> Refused:
    """Builds the error for an invalid, revoked or expired token."""
    problem = Problem.of(Kind.UNAUTHENTICATED, why)
    return Refused(problem, {"WWW-Authenticate": 'Bearer realm="leadhand", error="invalid_token"'})


def forbidden(detail: str, *, hint: str | None = None) -> Refused:
    """Builds the error for a valid token that does not permit the request."""
    return refuse(Kind.FORBIDDEN, detail, hint=hint)


def plan_changed(detail: str, plan: PlanView) -> Refused:
    """Builds the error for an edit of an outdated plan; it contains the current plan."""
    problem = Problem.of(Kind.PLAN_CHANGED, detail)
    return Refused(
        problem.model_copy(update={"plan": plan.model_dump(mode="json")}),
        {"ETag": plan_etag(plan.version)},
    )


def task_unknown(session: str, task: str, known: Sequence[str]) -> Refused:
    """Builds the error for an id that no task of the plan has; its hint names the nearest id."""
    near = nearest(task, known)
    ids = f"its tasks are {listed(known)}" if known else "it has no tasks yet"
    hint = ids if near is None else f"did you mean {near!r}?"
    detail = f"the plan of session {session!r} has no task {task[:80]!r}"
    return refuse(Kind.TASK_UNKNOWN, detail, hint=hint, field="task")


def wrong_media_type(media_type: str) -> Refused:
    """Builds the error for a body that is not declared as JSON."""
    detail = f"the body is {media_type!r}" if media_type else "the body has no Content-Type"
    return refuse_by_status(415, detail, hint="send the header 'Content-Type: application/json'")


def too_many_streams(limit: int) -> Refused:
    """Builds the error for an event stream beyond the maximum."""
    detail = f"{limit} event streams are open, as many as one process serves"
    hint = "try again soon, or read the events in pages without 'Accept: text/event-stream'"
    return refuse(Kind.TOO_MANY_STREAMS, detail, hint=hint)
