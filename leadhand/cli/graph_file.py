"""Reads a graph file, with its errors and their places."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue, ValidationError

from leadhand.flows.file_reading import FlowInvalid, json_in
from leadhand.flows.graph_faults import faults_of_graph
from leadhand.graphs.documents import GraphDocument
from leadhand.graphs.input_schema import declare_inputs
from leadhand.models.json_schema import schema_of, typed_value


class GraphFile(NamedTuple):
    """A graph file: the document if it has no errors, and else their paths and messages."""

    document: GraphDocument | None
    faults: list[tuple[str, str]]
    #: The JSON with the given fields and inputs; None if it is no object.
    given: dict[str, JsonValue] | None = None


def read_graph(file: Path, fields: Mapping[str, JsonValue], inputs: Mapping[str, str]) -> GraphFile:
    """Reads a graph file with `fields` and `inputs` replaced; returns the graph, or its errors."""
    try:
        given = json_in(file)
    except FlowInvalid as error:
        return GraphFile(None, [(error.path, error.message)])
    if not isinstance(given, dict):
        return GraphFile(None, [("", "it is not an object; write {...} with the field `steps`")])
    given = {"name": file.stem, **given, **fields}
    given = declare_inputs(given)
    known = given.get("inputs")
    declared = known if isinstance(known, dict) else {}
    unknown = [name for name in inputs if name not in declared]
    if unknown:
        names = ", ".join(declared) or "none"
        return GraphFile(
            None, [(f"inputs.{unknown[0]}", f"there is no such input; there: {names}")]
        )
    schema = given.get("input_schema")
    values = {
        name: typed_value(text, one) if (one := schema_of(schema, name)) else _value(text, default)
        for name, text in inputs.items()
        for default in (declared[name],)
    }
    given["inputs"] = {**declared, **values} if isinstance(known, dict) or not known else known
    return _document(given)


def _document(given: dict[str, JsonValue]) -> GraphFile:
    try:
        return GraphFile(GraphDocument.model_validate(given), [], given)
    except ValidationError as error:
        return GraphFile(None, faults_of_graph(error, given), given)


def _value(text: str, default: JsonValue) -> JsonValue:
    """The value of an input: text if its default is text, else JSON where it is JSON.

    >>> _value("7", "none"), _value("7", None), _value("x y", 3)
    ('7', 7, 'x y')
    """
    if isinstance(default, str):
        return text
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value
