"""Finds and checks the `${steps...}`, `${item...}` and `${index}` of a flow, and its conditions.

The grammar is that of graphs. Any other `${...}` is kept, as prompts may have shell variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from leadhand.graphs.documents import declare_inputs, input_faults
from leadhand.graphs.faults import GraphFault
from leadhand.graphs.references import Default, ReferenceFault, parse_at, target_of
from leadhand.models.json_schema import accepts_text, schema_of

_START = re.compile(r"(?<!\$)\$\{\s*(?:(steps)(?=[.\[])|(?:item|index)(?=\s*[.\[?}]))")
#: A label may have any characters but braces.
_ANY_LABEL = re.compile(r"\$\{steps\.([^{}]+)\}")
_NOT = re.compile(r"^not\s+")
_Schema = dict[str, JsonValue]


class FlowReference(NamedTuple):
    """A reference in a text of a flow, and where it is."""

    text: str
    start: int
    end: int
    kind: Literal["step", "item", "index"]
    #: Of the step.
    label: str = ""
    keys: tuple[str, ...] = ()
    default: Default | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the reference is to the whole text of a step, without keys and default."""
        return self.kind == "step" and not self.keys and self.default is None


class BadReference(NamedTuple):
    """A reference that names nothing, or cannot be parsed."""

    start: int
    end: int
    why: str
    #: The label that is not visible, if this is what is wrong.
    label: str | None = None


def find_references(
    text: str, labels: Collection[str], *, has_item: bool
) -> Iterator[FlowReference | BadReference]:
    """Yields the `${...}` references of a text, also invalid ones; `${item}` only if `has_item`.

    Only a step with forEach has an item.

    >>> [one] = find_references("${steps.a.b[0].c ?? 1}", {"a", "a.b"}, has_item=False)
    >>> one.label, one.keys, one.default
    ('a.b', ('0', 'c'), Default(value=1))
    """
    at = 0
    while (opening := _START.search(text, at)) is not None:
        at = opening.end()
        if opening[1] or has_item:
            found = _reference_at(text, opening.start(), labels)
            at = found.end
            yield found


def _reference_at(text: str, start: int, labels: Collection[str]) -> FlowReference | BadReference:
    written = _ANY_LABEL.match(text, start)
    if written is not None and written[1] in labels:
        return FlowReference(written[0], start, written.end(), "step", written[1])
    try:
        reference, end = parse_at(text, start)
    except ReferenceFault as fault:
        end = written.end() if written is not None else start + 2
        is_label = written is not None and not re.search(r"[\[\]\"]|\?\?", written[1])
        return BadReference(start, end, fault.why, written[1] if written and is_label else None)
    try:
        kind, label, keys = target_of(reference, labels)
    except ReferenceFault as fault:
        return BadReference(start, end, fault.why, reference.parts[1].key)
    assert kind != "input"
    return FlowReference(reference.text, start, end, kind, label, keys, reference.default)


def whole_reference(text: str, labels: Collection[str], *, has_item: bool) -> FlowReference | None:
    """Returns the `${...}` reference that is the entire text, or None."""
    found = next(find_references(text, labels, has_item=has_item), None)
    if not isinstance(found, FlowReference) or (found.start, found.end) != (0, len(text)):
        return None
    return found


class FlowCondition(NamedTuple):
    """The `when` of a step, without its `not`."""

    text: str
    is_negated: bool


def condition_of(when: str) -> FlowCondition:
    """Splits the `when` of a step into its reference and whether a leading `not` negates it.

    >>> condition_of("not ${steps.a.found}")
    FlowCondition(text='${steps.a.found}', is_negated=True)
    """
    text = _NOT.sub("", when)
    return FlowCondition(text, text != when)


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
