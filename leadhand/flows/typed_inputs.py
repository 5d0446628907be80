"""The inputs of flows that a schema declares to be no texts: their texts, values and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from leadhand.graphs.documents import declare_inputs, input_faults
from leadhand.graphs.faults import GraphFault
from leadhand.models.json_schema import accepts_text, schema_of

_Schema = dict[str, JsonValue]


def with_texts(given: Any) -> Any:
    """Returns a flow's JSON with all inputs its schema declares; non-texts become JSON texts."""
    if not isinstance(given, dict) or not isinstance(given.get("inputSchema"), dict):
        return given
    schema = given["inputSchema"]
    declared = declare_inputs({"inputs": given.get("inputs", {}), "input_schema": schema})
    if not isinstance(declared["inputs"], dict):
        return given
    inputs = {name: text_of(value, schema, name) for name, value in declared["inputs"].items()}
    return {**given, "inputs": inputs}


def text_of(value: JsonValue, schema: JsonValue, name: str) -> JsonValue:
    """Converts the value of an input to JSON text if the schema has the input; texts and null stay.

    >>> schema = {"properties": {"n": {"type": "integer"}}}
    >>> text_of(3, schema, "n"), text_of("3", schema, "n"), text_of(3, schema, "other")
    ('3', '3', 3)
    """
    if value is None or isinstance(value, str) or not schema_of(schema, name):
        return value
    return json.dumps(value, ensure_ascii=False)


def typed_inputs(schema: _Schema | None, inputs: Mapping[str, str | None]) -> dict[str, JsonValue]:
    """Returns the inputs whose schema accepts no text, with their values parsed from JSON texts.

    >>> typed_inputs({"properties": {"n": {"type": "integer"}}}, {"n": "3", "m": "4"})
    {'n': 3}
    """
    return {
        name: _value(text)
        for name, text in inputs.items()
        if text is not None and schema and not accepts_text(schema_of(schema, name))
    }


def faults_of_typed(
    schema: _Schema | None, inputs: Mapping[str, str | None]
) -> Iterator[GraphFault]:
    """Yields the errors of an input schema, or else those of the inputs' values."""
    typed = typed_inputs(schema, inputs)
    for fault in input_faults(schema, {**inputs, **typed}):
        path = fault.path
        if path.startswith("input_schema"):
            path = f"inputSchema{path.removeprefix('input_schema')}"
        yield fault._replace(path=path)


def _value(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
