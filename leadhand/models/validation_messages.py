"""Formats a validation error as one sentence: the field, its value and a hint."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from leadhand.models.patterns import form_of
from leadhand.models.suggestions import fields_at, listed, nearest

_HINTS = {
    "rule": "use 'all', 'any' or a number of checkers",
    "max_iterations": "use a whole number from 0 to 10000",
    "timeout_s": "use seconds, more than 0 and at most a week",
}
#: What a value of the right type looks like, by pydantic's error type.
_FORMS = {"bool_type": "true or false"}
_OWN_WORDS = "Value error, "
#: The most errors of one document that are named, and the most whose details are read: pydantic
#: has all of them or none.
NAMED, COUNTED = 50, 5_000
_LONGEST_VALUE = 80
_SUBJECT = re.compile(r"^(Input|String|Tuple|List|Dictionary) should")
_AFTER_VALIDATION = re.compile(r" after validation, not (more|\d+)$")


def first_error(
    error: ValidationError, model: type[BaseModel] | None = None, *, also: Iterable[str] = ()
) -> str:
    """Returns the first error of a validation as a sentence.

    The model, and other names that its caller accepts, suggest what a misspelt field means.

    >>> from leadhand.models.documents import LoopDocument
    >>> try:
    ...     LoopDocument(task="t", checkers=["true"], max_iterations=-1)
    ... except ValidationError as wrong:
    ...     print(first_error(wrong))
    max_iterations is -1: use a whole number from 0 to 10000
    """
    first = error_details(error)[0]
    field = _field(first["loc"])
    message = first["msg"]
    if message.startswith(_OWN_WORDS):
        own = message.removeprefix(_OWN_WORDS)
        return own if not field or own.startswith(field) else f"{field}: {own}"
    if first["type"] == "missing":
        return f"{field} is missing; give one"
    if first["type"] == "extra_forbidden":
        return f"{field} is no field that is known here; {_suggestion(first['loc'], model, also)}"
    form = form_of(first.get("ctx", {}).get("pattern")) or _FORMS.get(first["type"])
    if first["type"] == "literal_error":
        form = first["ctx"]["expected"]
    message = f"use {form}" if form is not None else message
    hint = _HINTS.get(field.rpartition(".")[2], message[:1].lower() + message[1:])
    return f"{field} is {_shown(first['input'])}: {hint}"


def error_details(error: ValidationError) -> list[ErrorDetails]:
    """Returns the errors of a validation; a single one about their number if they are too many."""
    count = error.error_count()
    if count <= COUNTED:
        return error.errors(include_url=False)
    why = ValueError(f"it has {count} errors; correct it until it has at most {COUNTED}")
    about = {"error": why}
    return [
        ErrorDetails(type="value_error", loc=(), msg=f"{_OWN_WORDS}{why}", input=None, ctx=about)
    ]


def plain_message(message: str) -> str:
    """Removes pydantic's type names from a message.

    >>> plain_message("Tuple should have at most 1000 items after validation, not 1001")
    'it should have at most 1000 items'
    """
    message = message.replace("a valid boolean", "a boolean: true or false")
    return _AFTER_VALIDATION.sub("", _SUBJECT.sub("it should", message))


def _suggestion(
    loc: tuple[int | str, ...], model: type[BaseModel] | None, also: Iterable[str]
) -> str:
    """What to do about an unknown field: the nearest name, or those that there are."""
    if model is None:
        return "correct its name, or remove it"
    known = [*model.model_fields, *also] if len(loc) == 1 else fields_at(model, loc)
    near = nearest(str(loc[-1]), known)
    return f"did you mean {near!r}?" if near is not None else f"use {listed(known)}"


def _field(loc: tuple[int | str, ...]) -> str:
    """The path of a field, without the names of the types that were tried on it."""
    return ".".join(str(part) for part in loc if isinstance(part, int) or part.isidentifier())


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."
