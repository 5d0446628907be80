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
    properties_of,
    schema_of,
    supported,
    whole,
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
    compared, converted = supported(schema), value
    try:
        converted = _Conversion(compared).apply(compared, value, 0)
        found = Judge().misfits(compared, converted, most=1)
    except TooLarge:  # the server that declared the tool compares it
        return converted, None
    return (value, str(found[0])) if found else (converted, None)


class _Conversion:
    """Converts texts, numbers and true or false in a value to the types of a schema."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._judge = Judge()
        self._fits = self._judge.comparison(whole)

    def apply(self, schema: Any, value: Any, depth: int) -> Any:
        """Return a value converted by a part of the schema. Raises TooLarge."""
        self._judge.spend(None, 1)
        if depth > DEEPEST or not isinstance(schema, dict):
            return value
        if isinstance(reference := schema.get("$ref"), str):
            _, place, name = reference.split("/")
            value = self.apply(self._whole[place][name], value, depth + 1)
        if "enum" in schema or "const" in schema:
            return self._as_listed([*schema.get("enum", ()), schema.get("const")], value)
        value = self._of_type(schema.get("type", []), value)
        for one in schema.get("allOf", ()):
            value = self.apply(one, value, depth + 1)
        for name in ("anyOf", "oneOf"):
            value = self._as_member(schema.get(name, ()), value, depth)
        return self._within(schema, value, depth + 1)

    def _of_type(self, given: Any, value: Any) -> Any:
        kinds = given if isinstance(given, list) else [given]
        if kinds and not self._fits({"type": kinds}, value):
            for kind in filter(_CONVERTED.__contains__, kinds):
                with suppress(ValidationError):
                    return _adapter(kind).validate_python(value)
        return whole(value) if "integer" in kinds and "number" not in kinds else value

    def _as_listed(self, values: list[Any], value: Any) -> Any:
        """The value as the whole number of a list that equals it."""
        self._judge.spend(None, len(values))
        number = whole(value)
        is_listed = any(type(one) is int and one == number for one in values)
        return number if type(number) is int and is_listed else value

    def _as_member(self, members: Any, value: Any, depth: int) -> Any:
        """The value as the first member of a union that accepts it as it is, or else converted."""
        schemas = [one for one in members if isinstance(one, dict)]
        accepting = next((one for one in schemas if self._fits(one, value)), None)
        if accepting is not None:
            return self.apply(accepting, value, depth + 1)
        tried = ((one, self.apply(one, value, depth + 1)) for one in schemas)
        return next((found for one, found in tried if self._fits(one, found)), value)

    def _within(self, schema: dict[str, Any], value: Any, depth: int) -> Any:
        """The value with its items or fields converted."""
        if isinstance(value, list) and ("items" in schema or "prefixItems" in schema):
            first = schema.get("prefixItems", ())
            return [
                self.apply(first[n] if n < len(first) else schema.get("items"), one, depth)
                for n, one in enumerate(value)
            ]
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        if isinstance(value, dict) and (known or others):
            return {
                name: self.apply(known.get(name, others), one, depth) for name, one in value.items()
            }
        return value


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_CONVERTED[kind])


def _shown(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
