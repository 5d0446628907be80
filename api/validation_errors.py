"""Converts pydantic errors to validation messages: field, value, message and hint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from app.redaction import HIDDEN, shortened
from leadhand.graphs.faults import GraphMalformed
from leadhand.models.patterns import form_of
from leadhand.models.problems import FieldProblem
from leadhand.models.suggestions import nearest_field
from leadhand.models.validation_messages import NAMED, error_details, plain_message

Place = Literal["body", "query", "header"]
#: Maximum errors that are read for them: each member of a union reports its own.
_READ = 4 * NAMED
_IDENTIFIER = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]*$")

#: The values of a discriminator whose error does not list them.
_TAGS = {
    "kind": "'loop', 'workflow', 'flow', 'graph', 'plan'",
    "op": "'add', 'change', 'drop', 'move', 'retry'",
}
_HINTS = {
    "missing": "add this field",
    "extra_forbidden": "leave it out, or correct its name",
    "int_type": "give a whole number",
    "int_from_float": "give a whole number",
    "int_parsing": "give a whole number",
    "float_type": "give a number",
    "string_type": "give a text",
    "bool_type": "give true or false, without quotation marks",
    "tuple_type": "give a list",
    "dict_type": "give an object",
    "model_type": "give an object",
    "model_attributes_type": "give an object",
    "string_too_short": "give a text that is not empty",
}


def field_problems(
    error: ValidationError,
    given: JsonValue,
    model: type[BaseModel] | None,
    *,
    place: Place = "body",
    most: int = NAMED,
) -> tuple[FieldProblem, ...]:
    """Converts a pydantic error to one error description per invalid field, in document order.

    At most `most`, and only that many errors are looked at, whatever their number.

    The model, if it is known, suggests the names of misspelt fields.
    """
    found: dict[str, FieldProblem] = {}
    for detail in error_details(error)[: _READ * most // NAMED]:
        for one in _problems_of(detail, given, model, place):
            # Each member of a union reports an error; the first one suffices.
            found.setdefault(one.field, one)
    # An error of a part implies one of the whole, which is left out.
    wholes = {whole for field in found for whole in _wholes(field)}
    return tuple(one for one in found.values() if one.field not in wholes)[:most]


def _problems_of(
    detail: ErrorDetails, given: JsonValue, model: type[BaseModel] | None, place: Place
) -> Iterator[FieldProblem]:
    """The problems of one error: those of the structure of a graph come together."""
    cause = detail.get("ctx", {}).get("error")
    if not isinstance(cause, GraphMalformed):
        yield _field_problem(detail, given, model, place)
        return
    for fault in cause.faults[:NAMED]:
        value = None if fault.value is None else shortened(fault.value, field=fault.path)
        yield FieldProblem(
            field=fault.path, value=value, message=fault.message, hint=fault.hint, place=place
        )


def _field_problem(
    detail: ErrorDetails, given: JsonValue, model: type[BaseModel] | None, place: Place
) -> FieldProblem:
    kind = detail["type"]
    if kind.startswith("union_tag"):
        return _unknown_kind(detail, given, place=place)
    field = _path(detail["loc"], given)
    value = None if kind == "missing" else shortened(detail["input"], field=field)
    message, _, hint = _message(detail).partition("; ")
    if value == HIDDEN:
        message = message.replace(str(detail["input"]), HIDDEN)
    return FieldProblem(
        field=field,
        value=value,
        message=message,
        hint=hint or _suggestion(detail, model) or _hint(kind, message),
        place=place,
    )


def _suggestion(detail: ErrorDetails, model: type[BaseModel] | None) -> str | None:
    if model is None or detail["type"] != "extra_forbidden":
        return None
    near = nearest_field(model, detail["loc"])
    return f"did you mean {near}?" if near is not None else None


def _unknown_kind(detail: ErrorDetails, given: JsonValue, *, place: Place) -> FieldProblem:
    """The problem for a document or step without a known kind."""
    about = detail.get("ctx", {})
    discriminator = str(about.get("discriminator", "")).strip("'")
    field = f"{_path(detail['loc'], given)}.{discriminator}".removeprefix(".")
    tags = about.get("expected_tags") or _TAGS.get(discriminator)
    hint = f"give one of {tags}" if tags else "add this field"
    if detail["type"] == "union_tag_not_found":
        return FieldProblem(field=field, message="it is missing", hint=hint, place=place)
    value = shortened(about.get("tag"))
    return FieldProblem(field=field, value=value, message="it is not known", hint=hint, place=place)


def _hint(kind: str, message: str) -> str:
    """Derives the hint from the kind of error or from its message.

    >>> _hint("literal_error", "it should be 'all' or 'any'")
    "give 'all' or 'any'"
    """
    known = _HINTS.get(kind)
    if known is not None:
        return known
    return message.replace("it should be ", "give ").replace("it should have ", "let it have ")


def _wholes(field: str) -> list[str]:
    """The paths of all values that contain the field.

    >>> _wholes("phases.0.task")
    ['phases.0', 'phases']
    """
    found = []
    while "." in field:
        field = field.rpartition(".")[0]
        found.append(field)
    return found


def _message(detail: ErrorDetails) -> str:
    """The error message in plain words, without pydantic's prefix."""
    if detail["type"] == "missing":
        return "it is missing"
    if detail["type"] == "extra_forbidden":
        return "there is no such field"
    form = form_of(detail.get("ctx", {}).get("pattern"))
    if form is not None:
        return f"it should be {form}"
    return plain_message(detail["msg"].removeprefix("Value error, "))


def _path(where: Sequence[int | str], given: JsonValue) -> str:
    """The path of the field in the input, without the names that pydantic inserts.

    >>> _path(("loop", "rule", "constrained-int"), {"kind": "loop", "rule": "most"})
    'rule'
    >>> _path(("workflow", "phases", 0, "task"), {"kind": "workflow", "phases": [{}]})
    'phases.0.task'
    """
    if where and isinstance(given, dict) and where[0] == given.get("kind"):
        where = where[1:]
    path: list[str] = []
    here: JsonValue = given
    for part in where:
        if here is not None and not isinstance(here, (dict, list)):
            break
        if isinstance(here, dict) and part in _tags(here) and part not in here:
            continue  # which kind of step or operation it is
        if isinstance(part, str) and not _IDENTIFIER.match(part) and not _holds(here, part):
            break
        path.append(str(part))
        here = _inside(here, part)
    return ".".join(path)


def _tags(here: dict[str, JsonValue]) -> tuple[JsonValue, ...]:
    return here.get("type"), here.get("op"), here.get("kind")


def _holds(here: JsonValue, part: str) -> bool:
    return isinstance(here, dict) and part in here


def _inside(here: JsonValue, part: int | str) -> JsonValue:
    if isinstance(here, dict) and isinstance(part, str):
        return here.get(part)
    if isinstance(here, list) and isinstance(part, int) and 0 <= part < len(here):
        return here[part]
    return None
