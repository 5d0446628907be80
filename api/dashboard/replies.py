"""Answers of the dashboard to a form: a message, another page, or a problem; and reads forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from flask import Response, redirect, request
from pydantic import BaseModel, JsonValue, ValidationError

from api.dashboard.render import page
from api.validation_errors import field_problems
from leadhand.errors import Refused, RequestInvalid
from leadhand.models.forms import GivenAnswer
from leadhand.models.problems import FieldProblem, Problem
from leadhand.models.views.explain import QuestionView

#: Prefix of the names of a form's fields.
FIELD = "field."
#: A form has at most as many groups in one another.
_DEPTH = 4
Fields = Mapping[str, Sequence[str]]
#: The event that makes the page fetch its panels.
CHANGED = "leadhand-changed"
#: Fields, and groups of fields, whose values are numbers.
_NUMBERS = frozenset({"budget", "max_iterations"})
M = TypeVar("M", bound=BaseModel)


def given_answer(question: QuestionView | None, sent: Fields) -> GivenAnswer:
    """Builds the answer to a question from a browser's form fields, without validating it."""
    choice, text = _one(sent, "choice"), _one(sent, "text")
    form = question.form if question is not None else None
    fields = _group(form, FIELD, sent, _DEPTH) if form is not None else None
    if choice is not None or fields is not None:
        return GivenAnswer.model_construct(choice=choice, fields=fields)
    return GivenAnswer.model_construct(text=text or "")


def _group(
    schema: Mapping[str, JsonValue], prefix: str, sent: Fields, depth: int
) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    properties = schema.get("properties")
    if not isinstance(properties, dict) or depth == 0:
        return found
    for name, field in properties.items():
        if isinstance(field, dict):
            value = _value(field, f"{prefix}{name}", sent, depth)
            if value is not None:
                found[name] = value
    return found


def _value(field: Mapping[str, JsonValue], name: str, sent: Fields, depth: int) -> JsonValue:
    match field.get("type"):
        case "object":
            return _group(field, f"{name}.", sent, depth - 1)
        case "array":
            return list(sent.get(name, ()))
        case "boolean":
            return _one(sent, name) is not None
        case "number" | "integer":
            return parse_number(_one(sent, name))
        case _:
            return _one(sent, name)


def parse_number(text: str | None) -> JsonValue:
    """Parses a number; returns any other text unchanged, for a later error message.

    >>> parse_number("3"), parse_number("0.5"), parse_number("many"), parse_number(None)
    (3, 0.5, 'many', None)
    """
    if text is None:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _one(sent: Fields, name: str) -> str | None:
    """The value of a field; None if it is absent or empty."""
    values = sent.get(name, ())
    text = values[0] if values else ""
    return text.replace("\r\n", "\n") if text.strip() else None


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
