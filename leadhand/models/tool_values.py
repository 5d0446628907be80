"""Compares the values of a tool's arguments with its schema, as the call itself does (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, Union

from pydantic import JsonValue, TypeAdapter, ValidationError

from leadhand.models.suggestions import listed
from leadhand.models.validation_messages import plain_message

#: Characters of a value that an error shows.
_SHOWN = 120
_Schema = Mapping[str, JsonValue]
_TYPES: Mapping[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "null": None,
}  # fmt: skip
#: Keywords that are compared with a value, besides those that hold other schemas.
_COMPARED = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
    "minItems", "maxItems", "minProperties", "maxProperties", "required",
)  # fmt: skip
#: What a value should be or have, by the keyword that it does not meet.
_LIMITS = {
    "minimum": "be greater than or equal to {}",
    "maximum": "be less than or equal to {}",
    "exclusiveMinimum": "be greater than {}",
    "exclusiveMaximum": "be less than {}",
    "multipleOf": "be a multiple of {}",
    "minLength": "have at least {} characters",
    "maxLength": "have at most {} characters",
    "minItems": "have at least {} items",
    "maxItems": "have at most {} items",
    "minProperties": "have at least {} fields",
    "maxProperties": "have at most {} fields",
    "required": "have the fields {}",
    "enum": "be one of {}",
}
#: The longest value that is compared with limits, in characters of JSON.
_LONGEST = 200_000


def argument_schema(schema: _Schema, name: str) -> _Schema:
    """Returns the JSON Schema of one argument; an empty one if there is none."""
    properties = schema.get("properties")
    found = properties.get(name) if isinstance(properties, dict) else None
    return found if isinstance(found, dict) else {}


def misfit(schema: _Schema, value: JsonValue) -> str | None:
    """Returns what is wrong with an argument of a tool; None if it is valid.

    As in the call, a text that is a number may be a number.

    >>> misfit({"type": "integer"}, "3"), misfit({}, object)
    (None, None)
    >>> misfit({"type": "array", "items": {"type": "integer"}}, [1, "x"])
    'in [1], it should be a valid integer, unable to parse string as an integer'
    >>> misfit({"type": "integer", "maximum": 10}, 99)
    'it should be less than or equal to 10'
    """
    try:
        converted = _adapter(json.dumps(schema)).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        parts = (part for part in first["loc"] if isinstance(part, int) or _is_key(value, part))
        inside = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)
        where = f"in {inside}, " if inside else ""
        return f"{where}{plain_message(first['msg']).replace('Input should', 'it should')}"
    return next(_limit_errors(schema, converted), None)


def misfits(tool: str, schema: _Schema, known: _Schema) -> Iterator[tuple[str, str]]:
    """Yields the arguments whose values the tool's schema rejects, each with the error text."""
    for name, value in known.items():
        wrong = misfit(argument_schema(schema, name), value)
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
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    if schema.get("additionalProperties") is False or known:
        unknown = next((name for name in arguments if name not in known), None)
        if unknown is not None and schema.get("additionalProperties") in (False, None):
            return {}, f"there is no argument {unknown!r}; there are: {listed(known)}"
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in arguments:
            return {}, f"argument {str(name)!r} is missing; give it"
    defaults = {
        name: one["default"]
        for name, one in known.items()
        if isinstance(one, dict) and "default" in one
    }
    found: dict[str, JsonValue] = {**defaults}
    for name, value in arguments.items():
        wrong = misfit(argument_schema(schema, name), value)
        if wrong is not None:
            return {}, f"argument {name!r}: it is {_shown(value)}; {wrong}"
        adapter = _adapter(json.dumps(argument_schema(schema, name)))
        found[name] = adapter.validate_python(value)
    return found, None


def _limit_errors(schema: _Schema, value: JsonValue) -> Iterator[str]:
    """Yields where a value of the right type does not meet a limit of the schema."""
    limits = _limits({**schema})
    if not limits or len(json.dumps(value, default=str)) > _LONGEST:
        return
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, best_match

    validator = Draft202012Validator(limits)
    try:
        validator.check_schema(limits)
    except SchemaError:  # the server that declared the tool judges its own schema
        return
    error = best_match(validator.iter_errors(value))
    if error is not None:
        inside = error.json_path.removeprefix("$")
        where = f"in {inside}, " if inside else ""
        yield f"{where}it should {_limit_text(str(error.validator), error.validator_value)}"


def _limits(schema: JsonValue, *, is_member: bool = False) -> dict[str, JsonValue]:
    """The limits of a schema, weaker than the schema itself: each value that fits it fits them.

    Without patterns, which may run for hours, and references. Types are left out, as a text may
    stand for a number, but in the members of a union, which they tell apart.

    >>> _limits({"type": "string", "pattern": "(a+)+$", "maxLength": 3})
    {'maxLength': 3}
    """
    if not isinstance(schema, dict) or "$ref" in schema:
        return {}
    kept = {name: schema[name] for name in _COMPARED if name in schema}
    if is_member and str(schema.get("type")) in (*_TYPES, "array", "object"):
        kept["type"] = schema["type"]
    if isinstance(schema.get("multipleOf"), int):  # a float is rarely a multiple of another
        kept["multipleOf"] = schema["multipleOf"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(one, str) for one in choices):
        kept["enum"] = choices
    return kept | {name: part for name, part in _limits_inside(schema).items() if part}


def _limits_inside(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The limits of the schemas in a schema."""
    kept: dict[str, JsonValue] = {
        name: _limits(schema.get(name)) for name in ("items", "additionalProperties")
    }
    # Weaker members may all fit, so that one of them is as much as can be asked.
    unions = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
    for name, kind in unions.items():
        members = schema.get(name)
        if isinstance(members, list) and members:
            kept[kind] = [_limits(one, is_member=True) for one in members]
    properties = schema.get("properties")
    if isinstance(properties, dict):
        kept["properties"] = {name: _limits(one) for name, one in properties.items()}
    return kept


def _limit_text(keyword: str, limit: object) -> str:
    text = ", ".join(map(str, limit)) if isinstance(limit, list) else str(limit)
    return _LIMITS.get(keyword, "have one of the forms that the schema allows").format(
        text[:_SHOWN]
    )


def _shown(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def accepts_text(schema: _Schema) -> bool:
    """Whether the schema's type has texts as values, not only numbers that are written as text.

    >>> accepts_text({"type": "integer"}), accepts_text({}), accepts_text({"enum": ["a", 1]})
    (False, True, True)
    """
    members = schema.get("anyOf")
    if isinstance(members, list):
        return any(accepts_text(one) for one in members if isinstance(one, dict))
    choices = schema.get("enum")
    if isinstance(choices, list):
        return any(isinstance(one, str) for one in choices)
    return schema.get("type", "string") == "string"


def _is_key(value: JsonValue, part: str) -> bool:
    """Whether part of a location is a key of the value, and not the name of a union's member."""
    return isinstance(value, dict) and part in value


@lru_cache(maxsize=512)
def _adapter(schema: str) -> TypeAdapter[Any]:
    return TypeAdapter(_type(json.loads(schema)))


def _type(schema: _Schema) -> Any:
    choices, members = schema.get("enum"), schema.get("anyOf")
    if isinstance(choices, list) and choices:
        is_plain = all(isinstance(one, str | int | None) for one in choices)
        return Literal[tuple(choices)] if is_plain else Any
    if isinstance(members, list) and any(isinstance(one, dict) for one in members):
        return Union[tuple(_type(one) for one in members if isinstance(one, dict))]  # noqa: UP007
    kind = str(schema.get("type", ""))
    if kind == "array":
        return list[_inner(schema.get("items"))]  # type: ignore[misc]
    if kind == "object":
        return dict[str, _inner(schema.get("additionalProperties"))]  # type: ignore[misc]
    return _TYPES.get(kind, Any)


def _inner(schema: JsonValue) -> Any:
    return _type(schema) if isinstance(schema, dict) else Any
