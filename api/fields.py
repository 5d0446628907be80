"""Tells people which fields are wrong, with what was given and the way out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from leadhand.complaints import in_our_words
from leadhand.patterns import form_of
from leadhand.problems import FieldProblem

Place = Literal["body", "query", "header"]
#: How much of a value is shown.
SHOWN = 80
#: How many fields one answer names.
NAMED = 50
#: What stands in the place of a secret.
HIDDEN = "(not shown)"

_SECRET_NAME = re.compile(r"token|secret|passw|api_?key|authorization|credential", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"(Bearer\s|Basic\s|lhc1\.|lht_|sk-|gh[opsu]_|github_pat_|xox[abp]-|AKIA|-----BEGIN )"
    r"|://[^/\s]*:[^/\s]*@"
    r"|(token|secret|passw\w*|api_?key)\s*[=:]",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]*$")

_KINDS = "'loop', 'workflow', 'flow'"
_HINTS = {
    "missing": "add this field",
    "extra_forbidden": "leave it out, or mend its name",
    "int_type": "give a whole number",
    "int_from_float": "give a whole number",
    "int_parsing": "give a whole number",
    "float_type": "give a number",
    "string_type": "give a text",
    "tuple_type": "give a list",
    "dict_type": "give an object",
    "model_type": "give an object",
    "model_attributes_type": "give an object",
    "string_too_short": "give a text that is not empty",
}


def field_problems(
    error: ValidationError, given: JsonValue, *, place: Place = "body"
) -> tuple[FieldProblem, ...]:
    """One problem for each field that is wrong, in the order in which they stand."""
    found: dict[str, FieldProblem] = {}
    for detail in error.errors(include_url=False):
        one = _field_problem(detail, given, place)
        # The arms of a union complain one by one; the first says enough.
        found.setdefault(one.field, one)
    # Where a part is wrong, the whole is wrong for no reason but that.
    wholes = {whole for field in found for whole in _wholes(field)}
    return tuple(one for one in found.values() if one.field not in wholes)[:NAMED]


def shortened(value: object, *, field: str = "") -> str | None:
    """A value as it may be shown: cut, without secrets, and of a container only its size.

    >>> shortened(["a", "b"]), shortened(True), shortened("x" * 100)[-4:]
    ('a list of 2', 'true', 'xx…"')
    >>> shortened("postgres://me:pw@host/db"), shortened("hunter2", field="db.password")
    ('(not shown)', '(not shown)')
    """
    match value:
        case dict():
            return f"an object of {len(value)}"
        case list() | tuple():
            return f"a list of {len(value)}"
        case str() | int() | float() | None:
            return _shown_scalar(value, field)
        case _:
            return None


def _shown_scalar(value: str | float | None, field: str) -> str:
    if _SECRET_NAME.search(field) or (isinstance(value, str) and _SECRET_VALUE.search(value)):
        return HIDDEN
    if isinstance(value, str) and len(value) > SHOWN:
        value = value[:SHOWN] + "…"
    return json.dumps(value, ensure_ascii=False)


def _field_problem(detail: ErrorDetails, given: JsonValue, place: Place) -> FieldProblem:
    kind = detail["type"]
    if kind.startswith("union_tag"):
        return _untold_kind(detail, given, place=place)
    field = _path(detail["loc"], given)
    value = None if kind == "missing" else shortened(detail["input"], field=field)
    message, _, hint = _message(detail).partition("; ")
    if value == HIDDEN:
        message = message.replace(str(detail["input"]), HIDDEN)
    return FieldProblem(
        field=field,
        value=value,
        message=message,
        hint=hint or _way_out(kind, message),
        place=place,
    )


def _untold_kind(detail: ErrorDetails, given: JsonValue, *, place: Place) -> FieldProblem:
    """The document does not say what it is, or it says what we do not know."""
    about = detail.get("ctx", {})
    told_by = str(about.get("discriminator", "")).strip("'")
    field = f"{_path(detail['loc'], given)}.{told_by}".removeprefix(".")
    hint = f"give one of {about.get('expected_tags', _KINDS)}"
    if detail["type"] == "union_tag_not_found":
        return FieldProblem(field=field, message="it is missing", hint=hint, place=place)
    value = shortened(about.get("tag"))
    return FieldProblem(field=field, value=value, message="it is not known", hint=hint, place=place)


def _way_out(kind: str, message: str) -> str:
    """What to do about it, where the message is all that there is to go by.

    >>> _way_out("literal_error", "it should be 'all' or 'any'")
    "give 'all' or 'any'"
    """
    known = _HINTS.get(kind)
    if known is not None:
        return known
    return message.replace("it should be ", "give ").replace("it should have ", "let it have ")


def _wholes(field: str) -> list[str]:
    """Everything that the field is a part of.

    >>> _wholes("phases.0.task")
    ['phases.0', 'phases']
    """
    found = []
    while "." in field:
        field = field.rpartition(".")[0]
        found.append(field)
    return found


def _message(detail: ErrorDetails) -> str:
    """What went wrong in plain words; our own validators' words without pydantic's before them."""
    if detail["type"] == "missing":
        return "it is missing"
    if detail["type"] == "extra_forbidden":
        return "there is no such field"
    form = form_of(detail.get("ctx", {}).get("pattern"))
    if form is not None:
        return f"it should be {form}"
    return in_our_words(detail["msg"].removeprefix("Value error, "))


def _path(where: Sequence[int | str], given: JsonValue) -> str:
    """Where the field stands in what was given, without the names that pydantic puts between.

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
        if isinstance(here, dict) and here.get("type") == part and part not in here:
            continue  # which kind of step it is
        if isinstance(part, str) and not _IDENTIFIER.match(part) and not _holds(here, part):
            break
        path.append(str(part))
        here = _inside(here, part)
    return ".".join(path)


def _holds(here: JsonValue, part: str) -> bool:
    return isinstance(here, dict) and part in here


def _inside(here: JsonValue, part: int | str) -> JsonValue:
    if isinstance(here, dict) and isinstance(part, str):
        return here.get(part)
    if isinstance(here, list) and isinstance(part, int) and 0 <= part < len(here):
        return here[part]
    return None
