"""Parses and resolves `${references}` in a step's inputs (pure).

A string that is entirely `${node}` or `${node.key.key}` is a reference; anything else is literal.
`$${...}` is the literal `${...}`. Reserved words take the place of a node's name:

- `${previous.node.key}`: the node in the previous iteration; None in the first
- `${history.node}`: verdict and feedback of the node in the last three iterations, oldest first
- `${item}`, `${index}`: in a for_each, the item's element and its number from 1
- `${node:text!}`: the node's text, or the reason why there is none
- `${top/loop/node:text!}`: the text of the node at that path from the program's own block;
  `${top/a|top/loop/b:text!}`: of the one among several that ran last
- `{"${text}": [part, ...]}`: one text of literal parts and references, each of which becomes text
- `{"${value}": {"text": ..., "nodes": [path, ...]}}`: a reference of a flow to a part of a value,
  as its author wrote it, to whichever of these nodes ran last, or to an item (`FlowValue`)
- `${turn.iteration}`, `${turn.max}`: of the innermost loop; `${turn.same}`: the number of its last
  iterations with the same result
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from leadhand.graphs import values
from leadhand.models.references import map_texts

#: The keys of `:outcome!`, the whole outcome of a step, also of a skipped one.
OUTCOME_KEYS = ("outcome!",)
#: The keys of `:text!`, and its substitutes for a missing text: for a node that did not run, a step
#: that failed, and a loop without an agent's answer.
TEXT_KEYS = ("text!",)
NOT_RUN, FAILED, SILENT = "(did not run)", "(failed)", "(nothing was said)"
RESERVED = frozenset({"previous", "history", "item", "index", "turn"})
#: The prefix of a path, and the separator of several; no node's name contains a slash or a bar.
TOP, _OR = "top/", "|"
_WHOLE = re.compile(r"^\$\{([A-Za-z][^{}]*)\}$")
_ESCAPED = re.compile(r"^\$\$+\{[^{}]*\}$")


#: The only key of an object that becomes one text, made of its parts.
TEXT = "${text}"


def text_of(parts: list[JsonValue]) -> dict[str, JsonValue]:
    """Builds a step input that resolves to one text, joined from literals and references."""
    return {TEXT: parts}


def _parts_of(value: dict[str, JsonValue]) -> list[JsonValue] | None:
    """The parts of an object that becomes one text; None for any other object."""
    parts = value.get(TEXT) if len(value) == 1 else None
    return parts if isinstance(parts, list) else None


#: The only key of an object that becomes a value, of any type.
VALUE = "${value}"


class FlowValue(NamedTuple):
    """A reference of a flow to a value or to a part of it."""

    #: As it is written in the flow.
    text: str
    #: The label of the step; empty for an item or its number.
    label: str = ""
    #: `is` or `not` for a condition, which becomes true or false.
    condition: str = ""


class Reference(NamedTuple):
    """A parsed reference: its first word, and the keys that follow."""

    word: str
    keys: tuple[str, ...]
    value: FlowValue | None = None


def value_of(value: FlowValue, paths: Iterable[str] = ()) -> dict[str, JsonValue]:
    """Builds a step input that resolves to a value of the node in `paths` that ran last."""
    fields: dict[str, JsonValue] = {"text": value.text, "nodes": [f"{TOP}{one}" for one in paths]}
    if value.label:
        fields["label"] = value.label
    if value.condition:
        fields["condition"] = value.condition
    return {VALUE: fields}


def _value_in(value: dict[str, JsonValue]) -> Reference | None:
    """The reference of an object that becomes a value; None for any other object."""
    fields = value.get(VALUE) if len(value) == 1 else None
    if not isinstance(fields, dict) or not isinstance(nodes := fields.get("nodes"), list):
        return None
    written, label, condition = (str(fields.get(k, "")) for k in ("text", "label", "condition"))
    found = FlowValue(written, label, condition)
    return Reference(_OR.join(map(str, nodes)) or "item", (), found)


def literal(text: str) -> str:
    """Escapes a text so that it is not parsed as a reference.

    >>> literal("${x}"), literal("$${x}"), literal("plain")
    ('$${x}', '$$${x}', 'plain')
    >>> [substitute(literal(text), lambda _: None) for text in ("${x}", "$${x}", "$$${x}")]
    ['${x}', '$${x}', '$$${x}']
    """
    return "$" + text if _WHOLE.match(text) or _ESCAPED.match(text) else text


def literals(value: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Escapes all texts in an object, at any depth, so that none is parsed as a reference."""
    return {name: map_texts(item, literal) for name, item in value.items()}


def text_reference(paths: Iterable[str]) -> str:
    """Builds a reference to the text of the node in `paths` that ran last.

    >>> text_reference(["plan", "loop/plan"])
    '${top/plan|top/loop/plan:text!}'
    """
    return node_reference(_OR.join(f"{TOP}{path}" for path in paths), *TEXT_KEYS)


def node_reference(node: str, *keys: str) -> str:
    """Builds a reference to the value of a node of the same block, or to a part of it.

    >>> node_reference("check.lint", "verdict"), parse(node_reference("check.lint"))
    ('${check.lint:verdict}', Reference(word='check.lint', keys=(), value=None))
    """
    return f"${{{node}:{'.'.join(keys)}}}"


def outcome_reference(step: str) -> str:
    """Builds a reference to the whole outcome of a step of the same block."""
    return node_reference(step, *OUTCOME_KEYS)


def names_of(reference: Reference) -> tuple[str, ...]:
    """Returns the nodes that a parsed reference names, in running order."""
    return tuple(reference.word.split(_OR))


def as_path(name: str) -> str | None:
    """Returns the path in a reference's name that begins with `top/`; None for a plain name.

    >>> as_path("top/loop/plan"), as_path("plan")
    ('loop/plan', None)
    """
    return name.removeprefix(TOP) if name.startswith(TOP) else None


def parse(text: str) -> Reference | None:
    """Parses a string that consists of one reference; returns None for other text.

    >>> parse("${check.lint:text}")
    Reference(word='check.lint', keys=('text',), value=None)
    >>> parse("${do.text}")
    Reference(word='do', keys=('text',), value=None)
    """
    match = _WHOLE.match(text)
    if match is None:
        return None
    # Node names may contain dots; a colon then marks the end of the name.
    name, colon, rest = match.group(1).partition(":")
    if colon:
        return Reference(name, tuple(rest.split(".")) if rest else ())
    word, *keys = match.group(1).split(".")
    return Reference(word, tuple(keys))


def references_in(value: JsonValue) -> Iterator[Reference]:
    """Yields all references in a JSON value, at any depth."""
    if isinstance(value, str):
        found = parse(value)
        if found is not None:
            yield found
    elif isinstance(value, list):
        for item in value:
            yield from references_in(item)
    elif isinstance(value, dict):
        of_value = _value_in(value)
        if of_value is not None:
            yield of_value
            return
        for item in value.values():
            yield from references_in(item)


def substitute(value: JsonValue, resolve: Callable[[Reference], JsonValue]) -> JsonValue:
    """Replaces each reference in a JSON value by `resolve`'s result, and unescapes literals."""
    if isinstance(value, str):
        found = parse(value)
        if found is not None:
            return resolve(found)
        return value[1:] if _ESCAPED.match(value) else value
    if isinstance(value, list):
        return [substitute(item, resolve) for item in value]
    if isinstance(value, dict):
        of_value = _value_in(value)
        if of_value is not None:
            return resolve(of_value)
        parts = _parts_of(value)
        if parts is not None:
            return "".join(values.as_text(substitute(part, resolve)) for part in parts)
        return {key: substitute(item, resolve) for key, item in value.items()}
    return value


def look_up(value: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    """Returns the value at these keys and list positions (from 0) in a JSON value; None if missing.

    >>> look_up({"a": [{"b": 1}]}, ("a", "0", "b"))
    1
    """
    try:
        return values.look_up(value, keys)
    except KeyError:
        return None


def of_outcome(outcome: Mapping[str, JsonValue] | None, keys: tuple[str, ...]) -> JsonValue:
    """Returns the part of a step's value, or else of its outcome, at these keys; None if skipped.

    A skipped step gives None; the key `succeeded` gives a boolean. The whole outcome is also that
    of a skipped step: a judge must know who skipped a check.
    """
    if outcome is not None and keys == OUTCOME_KEYS:
        return dict(outcome)
    if outcome is None or outcome.get("word") == "skipped":
        return None
    if keys == ("succeeded",):
        return outcome.get("word") == "succeeded"
    value = outcome.get("value")
    if value is None or (keys and not (isinstance(value, dict) and keys[0] in value)):
        value = dict(outcome) if value is None or keys else value
    return look_up(value, keys)
