"""Inputs with a JSON Schema: defaults, and all values that do not fit (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import JsonValue

from leadhand.graphs.faults import GraphFault
from leadhand.models.json_schema import (
    DEEPEST,
    KEYWORDS,
    Judge,
    TooLarge,
    fits,
    keyword_errors,
    members,
    properties_of,
    schema_of,
)
from leadhand.models.suggestions import listed, nearest

_Schema = dict[str, JsonValue]

#: The most schemas in the schema of a document's inputs.
_MOST = 300


def declare_inputs(given: Any) -> Any:
    """Returns a document with all inputs its JSON Schema declares; absent ones get a default."""
    if not isinstance(given, dict):
        return given
    inputs, schema = given.get("inputs", {}), given.get("input_schema")
    if not isinstance(inputs, dict) or not isinstance(schema, dict):
        return given
    declared = {name: _default_of(one) for name, one in properties_of(schema).items()}
    return {**given, "inputs": {**declared, **inputs}}


def accepts_null(schema: JsonValue, name: str) -> bool:
    """Whether the schema of an input permits null; False for an input that it does not have."""
    found = schema_of(schema, name)
    return bool(found) and fits(found, None)


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
    judge = Judge()
    for name, value in inputs.items():
        one = schema_of(schema, name)
        if not one and schema.get("additionalProperties") is False:
            hint = f"there are: {listed(properties_of(schema))}"
            yield GraphFault(f"inputs.{name}", "the schema has no such input", hint)
        if not one or value is None:
            continue
        try:
            misfits = judge.misfits(one, value)
        except TooLarge:
            hint = "shorten it, or leave its parts out of the schema"
            yield GraphFault(f"inputs.{name}", "it is too large to be compared", hint)
            return
        for where, why in misfits:
            hint = "give a value that fits the schema"
            yield GraphFault(f"inputs.{name}{where}", why, hint)


def _default_of(schema: JsonValue) -> JsonValue:
    return schema.get("default") if isinstance(schema, dict) else None


def _schema_faults(schema: JsonValue, path: str, depth: int) -> Iterator[GraphFault]:
    """Yields the keywords that are unknown, and what JSON Schema itself refuses."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or depth > DEEPEST:
        yield GraphFault(path, "it is not a schema", "give an object with `type`")
        return
    for name in schema:
        if name not in KEYWORDS:
            near = nearest(name, KEYWORDS)
            hint = f"did you mean {near!r}?" if near else "leave it out"
            yield GraphFault(f"{path}.{name}", "this keyword is not supported", hint)
    for where, why in keyword_errors(schema):
        yield GraphFault(f"{path}{where}", why, "see json-schema.org")
    for where, one in members(schema):
        yield from _schema_faults(one, path + where, depth + 1)


def _schemas(schema: JsonValue, depth: int) -> Iterator[JsonValue]:
    yield schema
    if isinstance(schema, dict) and depth <= DEEPEST:
        for _, one in members(schema):
            yield from _schemas(one, depth + 1)
