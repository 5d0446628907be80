"""Compares the values of a tool's arguments with its schema, as the call itself does (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from leadhand.models.json_schema import (
    DEEPEST,
    Judge,
    TooLarge,
    fits,
    properties_of,
    schema_of,
    supported,
)
from leadhand.models.suggestions import listed

#: Characters of a value that an error shows.
_SHOWN = 120
_Schema = Mapping[str, JsonValue]
#: Types to which a call converts values of others, such as texts that are numbers.
_CONVERTED: Mapping[str, type] = {"integer": int, "number": float, "boolean": bool}


def misfit(schema: _Schema, value: JsonValue) -> str | None:
    """Returns what is wrong with an argument of a tool; None if it is valid.

    As in the call, a text that is a number may be a number.

    >>> misfit({"type": "integer"}, "3"), misfit({}, object)
    (None, None)
    >>> misfit({"type": "array", "items": {"type": "integer"}}, [1, "x"])
    'in [1], it should be a whole number'
    >>> misfit({"type": "integer", "maximum": 10}, 99)
    'it should be less than or equal to 10'
    """
    return _fit(schema, value)[1]


def misfits(tool: str, schema: _Schema, known: _Schema) -> Iterator[tuple[str, str]]:
    """Yields the arguments whose values the tool's schema rejects, each with the error text."""
    for name, value in known.items():
        wrong = misfit(schema_of(schema, name), value)
        if wrong is not None:
            yield name, f"{wrong}; `leadhand tools show {tool}` shows its arguments"


def convert(
    schema: _Schema, arguments: Mapping[str, JsonValue]
) -> tuple[dict[str, JsonValue], str | None]:
    """Converts arguments by a tool's schema, with defaults; returns (arguments, first error).

    >>> convert({"properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": "3"})
    ({'n': 3}, None)
    >>> convert({"properties": {"n": {}}, "required": ["n"]}, {})[1]
    "argument 'n' is missing; give it"
    """
    known = properties_of(schema)
    if schema.get("additionalProperties") is False or known:
        unknown = next((name for name in arguments if name not in known), None)
        if unknown is not None and schema.get("additionalProperties") in (False, None):
            return {}, f"there is no argument {unknown!r}; there are: {listed(known)}"
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in arguments:
            return {}, f"argument {name!r} is missing; give it"
    found: dict[str, JsonValue] = {
        name: one["default"]
        for name, one in known.items()
        if isinstance(one, dict) and "default" in one
    }
    for name, value in arguments.items():
        found[name], wrong = _fit(schema_of(schema, name), value)
        if wrong is not None:
            return {}, f"argument {name!r}: it is {_shown(value)}; {wrong}"
    return found, None


def _fit(schema: _Schema, value: JsonValue) -> tuple[JsonValue, str | None]:
    """Converts a value by its schema; returns it, and what is wrong with it."""
    if not schema:
        return value, None
    compared = supported(schema)
    converted = _converted(compared, value, compared, 0)
    try:
        found = Judge().misfits(compared, converted, most=1)
    except TooLarge:  # the server that declared the tool compares it
        return converted, None
    return (value, str(found[0])) if found else (converted, None)


def _converted(schema: Any, value: Any, whole: Any, depth: int) -> Any:
    """The value with texts, numbers and true or false converted to the types of the schema."""
    if depth > DEEPEST or not isinstance(schema, dict) or "enum" in schema or "const" in schema:
        return value
    if isinstance(reference := schema.get("$ref"), str):
        _, place, name = reference.split("/")
        value = _converted(whole[place][name], value, whole, depth + 1)
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if fits({"type": kinds}, value) or kind not in _CONVERTED:
            continue
        with suppress(ValidationError):
            return _adapter(kind).validate_python(value)
    for one in schema.get("allOf", ()):
        value = _converted(one, value, whole, depth + 1)
    for name in ("anyOf", "oneOf"):
        value = _as_member(schema.get(name, ()), value, whole, depth)
    return _converted_within(schema, value, whole, depth + 1)


def _as_member(members: Any, value: Any, whole: Any, depth: int) -> Any:
    """The value as the first member of a union that accepts it as it is, or else converted."""
    definitions = {name: whole[name] for name in ("$defs", "definitions") if name in whole}
    schemas = [{**definitions, **one} for one in members if isinstance(one, dict)]
    if any(fits(one, value) for one in schemas):
        return value
    tried = ((one, _converted(one, value, whole, depth + 1)) for one in schemas)
    return next((found for one, found in tried if fits(one, found)), value)


def _converted_within(schema: dict[str, Any], value: Any, whole: Any, depth: int) -> Any:
    """The value with its items or fields converted."""
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        return [
            _converted(first[n] if n < len(first) else schema.get("items"), one, whole, depth)
            for n, one in enumerate(value)
        ]
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        return {
            name: _converted(known.get(name, others), one, whole, depth)
            for name, one in value.items()
        }
    return value


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_CONVERTED[kind])


def _shown(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
