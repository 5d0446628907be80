"""Reads a person's answer from the fields of a form (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from leadhand.models.forms import GivenAnswer
from leadhand.models.views.explain import QuestionView

#: Prefix of the names of a form's fields.
FIELD = "field."
#: A form has at most as many groups in one another.
_DEPTH = 4

Fields = Mapping[str, Sequence[str]]


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
