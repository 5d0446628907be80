"""Inputs with a JSON Schema: defaults, and all values that do not fit (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import JsonValue

from leadhand.graphs.faults import GraphFault
from leadhand.models.suggestions import listed, nearest

_Schema = dict[str, JsonValue]

#: Keywords by the kind of value that they hold. Patterns are left out: a text could make one run
#: for hours. References are left out: they could be circular or name other machines.
_SCHEMAS = ("items", "additionalProperties", "not")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_PLAIN = (
    "type", "enum", "const", "title", "description", "default", "examples", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems", "minProperties", "maxProperties", "required", "$schema", "$comment",
)  # fmt: skip
_KEYWORDS = (*_PLAIN, *_SCHEMAS, *_LISTS, "properties")
_SHOWN = 80
#: The most levels of a schema, and the most schemas in it.
_DEEPEST, _MOST = 20, 300
#: The most keywords that are compared with all values of a document, those with a large value
#: (by so many of its parts) several times: errors quote it.
_CHECKS, _LARGE = 100_000, 1_000


def declare_inputs(given: Any) -> Any:
    """Returns a document with all inputs its JSON Schema declares; absent ones get a default."""
    if not isinstance(given, dict):
        return given
    inputs, schema = given.get("inputs", {}), given.get("input_schema")
    if not isinstance(inputs, dict) or not isinstance(schema, dict):
        return given
    declared = {name: _default_of(one) for name, one in _properties(schema).items()}
    return {**given, "inputs": {**declared, **inputs}}


def schema_of(schema: JsonValue, name: str) -> _Schema:
    """Looks up an input in an input schema; returns its JSON Schema, {} if it is not there."""
    found = _properties(schema).get(name) if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def accepts_text(schema: JsonValue, name: str) -> bool:
    """Whether texts are valid values of the input, or no schema says what it is.

    >>> kinds = {"n": {"type": "integer"}, "word": {"enum": ["a", "b"]}}
    >>> [accepts_text({"properties": kinds}, name) for name in ("n", "word", "other")]
    [False, True, True]
    """
    found = schema_of(schema, name)
    kinds, values = found.get("type"), found.get("enum")
    if kinds is not None:
        return "string" in (kinds if isinstance(kinds, list) else [kinds])
    return not isinstance(values, list) or any(isinstance(one, str) for one in values)


def accepts_null(schema: JsonValue, name: str) -> bool:
    """Whether the schema of an input permits null; False for an input that it does not have."""
    found = schema_of(schema, name)
    return bool(found) and not list(_errors(found, None))


def input_faults(schema: _Schema | None, inputs: Mapping[str, JsonValue]) -> Iterator[GraphFault]:
    """Yields the errors of an input schema, or if it is valid, those of the inputs' values."""
    if schema is None:
        return
    found = [*_faults_of_whole(schema)] or list(_schema_faults(schema, "input_schema", 0))
    yield from found or _faults_of_values(schema, inputs)


def _faults_of_whole(schema: _Schema) -> Iterator[GraphFault]:
    if sum(1 for _ in islice(_schemas(schema, 0), _MOST + 1)) > _MOST:
        hint = f"let it have at most {_MOST} schemas, with those of its properties"
        yield GraphFault("input_schema", "it is too large", hint)
    if schema.get("type", "object") != "object":
        hint = 'write {"type": "object", "properties": {...}}'
        yield GraphFault("input_schema.type", "inputs are an object", hint)


def _faults_of_values(schema: _Schema, inputs: Mapping[str, JsonValue]) -> Iterator[GraphFault]:
    checks = _Checks()
    for name, value in inputs.items():
        one = schema_of(schema, name)
        if not one and schema.get("additionalProperties") is False:
            hint = f"there are: {listed(_properties(schema))}"
            yield GraphFault(f"inputs.{name}", "the schema has no such input", hint)
        if not one or value is None:
            continue
        if not checks.suffice(one, value):
            hint = "shorten it, or leave its parts out of the schema"
            yield GraphFault(f"inputs.{name}", "it is too large to be compared", hint)
            return
        for where, why in _errors(one, value):
            hint = "give a value that fits the schema"
            yield GraphFault(f"inputs.{name}{where}", why, hint)


class _Checks:
    """Counts how many keywords are compared with the values of a document, before they are."""

    def __init__(self) -> None:
        self._left = _CHECKS
        #: The number of parts of each list and object, by its id.
        self._sizes: dict[int, int] = {}

    def suffice(self, schema: JsonValue, value: JsonValue) -> bool:
        """Whether the value may be compared with the schema, too."""
        self._sizes.clear()
        self._measure(value)
        self._count(schema, value)
        return self._left >= 0

    def _measure(self, value: JsonValue) -> int:
        size = 1
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, list | dict):
            size += sum(map(self._measure, value.values() if isinstance(value, dict) else value))
            self._sizes[id(value)] = size
        return size

    def _count(self, schema: JsonValue, value: JsonValue) -> None:
        if not isinstance(schema, dict) or self._left < 0:
            return
        choices = schema.get("enum")
        keywords = len(schema) + (len(choices) if isinstance(choices, list) else 0)
        size = len(value) if isinstance(value, str) else self._sizes.get(id(value), 1)
        self._left -= keywords * (1 + size // _LARGE)
        for where, one in _members(schema):
            for part in _parts_below(where, value):
                self._count(one, part)


def _parts_below(where: str, value: JsonValue) -> Iterable[JsonValue]:
    """The parts of a value to which a member of its schema may apply."""
    _, keyword, *_ = where.replace("[", ".").split(".", 2)
    match keyword:
        case "properties":
            name = where.removeprefix(".properties.")
            return (value[name],) if isinstance(value, dict) and name in value else ()
        case "additionalProperties":
            return value.values() if isinstance(value, dict) else ()
        case "items" | "prefixItems":
            return value if isinstance(value, list) else ()
        case _:
            return (value,)


def typed_value(text: str, schema: _Schema) -> JsonValue:
    """Parses a text as JSON if the input's schema rejects it as a text; else returns it unchanged.

    >>> typed_value("7", {"type": "integer"}), typed_value("7", {"type": "string"})
    (7, '7')
    """
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return text if not list(_errors(schema, text)) else value


def _properties(schema: _Schema) -> Mapping[str, JsonValue]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _default_of(schema: JsonValue) -> JsonValue:
    return schema.get("default") if isinstance(schema, dict) else None


def _schema_faults(schema: JsonValue, path: str, depth: int) -> Iterator[GraphFault]:
    """Yields the keywords that are unknown, and what JSON Schema itself refuses."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or depth > _DEEPEST:
        yield GraphFault(path, "it is not a schema", "give an object with `type`")
        return
    for name in schema:
        if name not in _KEYWORDS:
            near = nearest(name, _KEYWORDS)
            hint = f"did you mean {near!r}?" if near else "leave it out"
            yield GraphFault(f"{path}.{name}", "this keyword is not supported", hint)
    yield from _own_faults(schema, path)
    for where, one in _members(schema):
        yield from _schema_faults(one, path + where, depth + 1)


def _members(schema: _Schema) -> Iterator[tuple[str, JsonValue]]:
    """Yields the schemas in a schema, each with its path."""
    for name in _SCHEMAS:
        if name in schema:
            yield f".{name}", schema[name]
    for name in _LISTS:
        members = schema.get(name)
        for number, one in enumerate(members if isinstance(members, list) else []):
            yield f".{name}[{number}]", one
    for name, one in _properties(schema).items():
        yield f".properties.{name}", one


def _schemas(schema: JsonValue, depth: int) -> Iterator[JsonValue]:
    yield schema
    if isinstance(schema, dict) and depth <= _DEEPEST:
        for _, one in _members(schema):
            yield from _schemas(one, depth + 1)


def _own_faults(schema: _Schema, path: str) -> Iterator[GraphFault]:
    """Yields what is wrong with the keywords of one level."""
    from jsonschema import Draft202012Validator

    level = {name: value for name, value in schema.items() if name in _PLAIN}
    level |= {"properties": schema["properties"]} if "properties" in schema else {}
    for error in Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(level):
        if len(error.absolute_path) > 1 and error.absolute_path[0] == "properties":
            continue  # it is reported with its own path
        where = "".join(f".{part}" for part in error.absolute_path)
        yield GraphFault(f"{path}{where}", _cut(error.message), "see json-schema.org")


def _errors(schema: _Schema, value: JsonValue) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with a value: the path in it, and the message."""
    from jsonschema import Draft202012Validator

    for error in Draft202012Validator(dict(schema)).iter_errors(value):
        parts = error.absolute_path
        yield (
            "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts),
            _cut(error.message),
        )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
