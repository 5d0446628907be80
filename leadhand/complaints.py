"""Says in one sentence what is wrong with a document: the field, the value, the way out."""

from __future__ import annotations

import re

from pydantic import ValidationError

from leadhand.patterns import form_of

_HINTS = {
    "rule": "use 'all', 'any' or a number of checkers",
    "max_iterations": "use a whole number from 0 to 10000",
    "timeout_s": "use seconds, more than 0 and at most a week",
}
_OWN_WORDS = "Value error, "
_LONGEST_VALUE = 80
_SUBJECT = re.compile(r"^(Input|String|Tuple|List|Dictionary) should")
_AFTER_VALIDATION = re.compile(r" after validation, not (more|\d+)$")


def complaint(error: ValidationError) -> str:
    """The first thing that is wrong; what our own validators say stands for itself.

    >>> from leadhand.documents import LoopDocument
    >>> try:
    ...     LoopDocument(task="t", checkers=["true"], max_iterations=-1)
    ... except ValidationError as wrong:
    ...     print(complaint(wrong))
    max_iterations is -1: use a whole number from 0 to 10000
    """
    first = error.errors(include_url=False)[0]
    field = _field(first["loc"])
    message = first["msg"]
    if message.startswith(_OWN_WORDS):
        said = message.removeprefix(_OWN_WORDS)
        return said if not field or said.startswith(field) else f"{field}: {said}"
    if first["type"] == "missing":
        return f"{field} is missing; give one"
    if first["type"] == "extra_forbidden":
        return f"{field} is no field that is known here; look for a typing error"
    form = form_of(first.get("ctx", {}).get("pattern"))
    message = f"use {form}" if form is not None else message
    hint = _HINTS.get(field.rpartition(".")[2], message[:1].lower() + message[1:])
    return f"{field} is {_shown(first['input'])}: {hint}"


def in_our_words(message: str) -> str:
    """What pydantic says of a value, without the names of its kinds.

    >>> in_our_words("Tuple should have at most 1000 items after validation, not 1001")
    'it should have at most 1000 items'
    """
    return _AFTER_VALIDATION.sub("", _SUBJECT.sub("it should", message))


def _field(loc: tuple[int | str, ...]) -> str:
    """The path of a field, without the names of the types that were tried on it."""
    return ".".join(str(part) for part in loc if isinstance(part, int) or part.isidentifier())


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."
