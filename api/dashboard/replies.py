"""Answers of the dashboard to a form: a message, another page, or a problem; and reads forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from flask import Response, redirect, request
from pydantic import BaseModel, JsonValue, ValidationError

from api.dashboard.panels.answer_fields import parse_number
from api.dashboard.render import page
from api.validation_errors import field_problems
from leadhand.errors import Refused, RequestInvalid
from leadhand.models.problems import FieldProblem, Problem

#: The event that makes the page fetch its panels.
CHANGED = "leadhand-changed"
#: Fields, and groups of fields, whose values are numbers.
_NUMBERS = frozenset({"budget", "max_iterations"})

M = TypeVar("M", bound=BaseModel)


def read_form(model: type[M], fields: Mapping[str, JsonValue] | None = None) -> M:
    """Parses the non-empty form fields of the request into a model. Raises Refused for bad ones.

    A name with a dot is a field of a group: `budget.steps`. `fields` are the values of those that
    the form leaves empty.
    """
    values: dict[str, JsonValue] = dict(fields or {})
    groups: dict[str, dict[str, JsonValue]] = {}
    for name, sent in request.form.items():
        group, _, key = name.partition(".")
        if group not in model.model_fields or not sent.strip():
            continue
        text = sent.replace("\r\n", "\n")
        value = parse_number(text) if group in _NUMBERS else text
        if key:
            groups.setdefault(group, {})[key] = value
        else:
            values[group] = value
    given: dict[str, JsonValue] = {**values, **groups}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise RequestInvalid.of_fields(field_problems(error, given, model)) from None


def done(text: str, target: str) -> Response:
    """Returns the response to a successful action: a message, or without scripts a redirect."""
    if not request.headers.get("HX-Request"):
        return see_other(target if target.startswith("/") else f"/ui/sessions/{target}")
    return notice(page("notice.html", problem=None, text=text))


def late(title: str, why: str) -> Response:
    """Returns a response with status 409 and a reason, for an action that another preceded."""
    problem = Problem(title=title, status=409, detail=why)
    return notice(page("notice.html", status=409, problem=problem, text=""))


def notice(response: Response) -> Response:
    """Sets headers by which the browser shows a response as a message and updates the page."""
    response.headers["HX-Retarget"] = "#notices"
    response.headers["HX-Reswap"] = "beforeend"
    response.headers["HX-Trigger"] = CHANGED
    return response


def go_to(path: str) -> Response:
    """Returns a redirect to another page, for browsers with or without scripts."""
    if not request.headers.get("HX-Request"):
        return see_other(path)
    response = Response(status=204)
    response.headers["HX-Redirect"] = path
    return response


def see_other(path: str) -> Response:
    """Returns a redirect with status 303, which the browser follows with GET."""
    response = redirect(path, 303)
    assert isinstance(response, Response)
    return response


def missing(field: str, hint: str) -> Refused:
    """Returns the error for a form that lacks a required field."""
    return RequestInvalid.of_fields(
        (FieldProblem(field=field, message="it is missing", hint=hint),)
    )
