"""All that is wrong with a flow: where in the file, and what to do about it.

What stands around a step that cannot be read may be wrong too. So what is wrong is put aside, and
the rest is looked at as if it were not there.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from leadhand.complaints import in_our_words
from leadhand.flow_documents import (
    ANY_STRUCTURE,
    FieldFaulty,
    FlowDefinition,
    FlowMalformed,
    is_input_name,
)
from leadhand.flow_structure import INPUT_REFERENCE, Fault, faults
from leadhand.patterns import form_of

#: Where steps stand in lists.
_LISTS = ("steps", "then", "else")

#: What is said of the number of a list's items.
_COUNTED = ("too_short", "too_long")
#: What pydantic puts behind the name of a field whose very name is wrong.
_KEY = "[key]"

#: How often more is put aside before nothing is left to look at.
_ROUNDS = 5

Path = tuple[int | str, ...]


class Found(NamedTuple):
    """Paths and sentences, and as much of the flow as could be read."""

    faults: list[tuple[str, str]]
    flow: FlowDefinition | None


def all_faults(model: type[FlowDefinition], given: JsonValue) -> Found:
    """What is wrong with the fields, then with how the steps fit together."""
    found, here = list[tuple[str, str]](), given
    # What is put aside may have hidden what is wrong within it.
    for whole_steps in (False, *[True] * _ROUNDS):
        try:
            flow = model.model_validate(here, context=ANY_STRUCTURE)
        except ValidationError as error:
            found = found or faults_of(error, given)
            here = _put_aside(error, here, whole_steps=whole_steps)
        else:
            found += [(fault.path, fault.message) for fault in _of_structure(flow)]
            return Found(list(dict.fromkeys(found)), flow)
    return Found(found, None)


def _of_structure(flow: FlowDefinition) -> Iterator[Fault]:
    yield from faults(flow)
    for name, other in getattr(flow, "flows", {}).items():
        for fault in faults(other):
            yield fault._replace(path=f"flows.{name}.{fault.path}")


def fault_of(error: ValidationError, given: JsonValue) -> tuple[str, str]:
    """The first thing that is wrong: its path in what was given, and a sentence."""
    return _fault(error.errors(include_url=False)[0], given)


def _fault(first: ErrorDetails, given: JsonValue) -> tuple[str, str]:
    cause = first.get("ctx", {}).get("error")
    path = path_of(first["loc"], given)
    if isinstance(cause, FlowMalformed):
        return f"{path}.{cause.fault.path}".removeprefix("."), cause.fault.message
    if isinstance(cause, FieldFaulty):
        return f"{path}.{cause.field}".removeprefix("."), cause.message
    return path, _sentence(first)


def faults_of(error: ValidationError, given: JsonValue) -> list[tuple[str, str]]:
    """All that is wrong, in the order in which it stands."""
    wrong = [(_real(one["loc"], given), one) for one in error.errors(include_url=False)]
    # A list is counted without those of its items that cannot be read.
    parts = {place[:end] for place, _ in wrong for end in range(len(place))}
    told = [one for place, one in wrong if place not in parts or one["type"] not in _COUNTED]
    return [_fault(one, given) for one in told]


def path_of(where: Sequence[int | str], given: JsonValue) -> str:
    """Where something stands, without the types that were tried on the way.

    >>> given = {"steps": [{"type": "startLoop", "steps": [{"type": "break"}]}]}
    >>> path_of(("steps", 0, "startLoop", "steps", 0, "break", "breakOn"), given)
    'steps[0].steps[0].breakOn'
    """
    parts = (f"[{p}]" if isinstance(p, int) else f".{p}" for p in _real(where, given))
    return "".join(parts).removeprefix(".")


class _Owner(NamedTuple):
    """The innermost step, or flow, that a fault is in, and which of its fields it is about."""

    path: Path
    key: str | None

    @property
    def is_flow(self) -> bool:
        return not self.path or isinstance(self.path[-1], str)


def _put_aside(error: ValidationError, given: JsonValue, *, whole_steps: bool) -> JsonValue:
    """The flow without the fields that are wrong, or without the steps that they are in."""
    kept = copy.deepcopy(given)
    owners = {
        _owner(_real(one["loc"], given)): one["type"] == "missing"
        for one in error.errors(include_url=False)
    }
    # Inner ones first: what is put in place of an outer one keeps its lists of steps.
    for owner, is_missing in sorted(owners.items(), key=lambda item: -len(item[0].path)):
        here = _at(kept, owner.path)
        if owner.is_flow:
            _mend_flow(here, owner.key)
        elif owner.key is None or is_missing or whole_steps:
            _put(kept, owner.path, _nothing(here))
        elif isinstance(here, dict):
            here.pop(owner.key, None)
    return kept


def _owner(path: Path) -> _Owner:
    ends = [0]
    if len(path) > 2 and path[0] == "flows":
        ends.append(2)
    for number, part in enumerate(path):
        if isinstance(part, int) and number and path[number - 1] in _LISTS:
            ends.append(number + 1)
    end = ends[-1]
    key = path[end] if end < len(path) else None
    return _Owner(path[:end], str(key) if key is not None else None)


def _real(where: Sequence[int | str], given: JsonValue) -> Path:
    """The parts of a place that stand in what was given, without the types that were tried."""
    parts, here = list[int | str](), given
    for before, part in zip((None, *where), where, strict=False):
        if isinstance(part, int):
            here = here[part] if isinstance(here, list) and part < len(here) else None
        elif _is_type(part, before, here) or part == _KEY:
            continue
        else:
            here = here.get(part) if isinstance(here, dict) else None
        parts.append(part)
    return tuple(parts)


def _is_type(part: int | str, before: int | str | None, here: JsonValue) -> bool:
    """A step's own type is tried right after its place; `tool` is a field of that step too."""
    return isinstance(here, dict) and here.get("type") == part and isinstance(before, int)


def _at(value: JsonValue, path: Path) -> JsonValue:
    for part in path:
        if isinstance(value, list) and isinstance(part, int):
            value = value[part]
        elif isinstance(value, dict):
            value = value.get(str(part))
    return value


def _put(value: JsonValue, path: Path, step: JsonValue) -> None:
    inside = _at(value, path[:-1])
    if isinstance(inside, list) and isinstance(path[-1], int):
        inside[path[-1]] = step


def _mend_flow(flow: JsonValue, key: str | None) -> None:
    """Leave a field of a flow out; what its texts ask for counts as given."""
    if not isinstance(flow, dict):
        return
    flow.pop(str(key), None)
    if key == "steps":
        flow["steps"] = [_WAIT]
    if key == "inputs":
        asked = INPUT_REFERENCE.findall(json.dumps(flow, default=str))
        flow["inputs"] = {name: "" for name in asked if is_input_name(name)}


def _nothing(step: JsonValue) -> JsonValue:
    """A step of the same kind that does nothing, around the steps that are in it."""
    was = step if isinstance(step, dict) else {}
    kept = {"label": was["label"]} if isinstance(was.get("label"), str) else {}
    match was.get("type"):
        case "startLoop":
            return {"type": "startLoop", **kept, **_lists(was, "steps")}
        case "if":
            inside = _lists(was, "then", "else")
            return {"type": "if", **kept, "command": "true", "then": [_WAIT], **inside}
        case "break" | "continue" as type_:
            return {"type": type_, **kept, "command": "true", f"{type_}On": "yes"}
        case "endLoop":
            return {"type": "endLoop"}
        case _:
            return {**_WAIT, **kept}


_WAIT: dict[str, JsonValue] = {"type": "wait", "seconds": 1}


def _lists(step: dict[str, JsonValue], *names: str) -> dict[str, JsonValue]:
    return {name: step[name] for name in names if isinstance(step.get(name), list) and step[name]}


_SENTENCES = {
    "missing": "it is missing; add this field",
    "extra_forbidden": "there is no such field; leave it out, or mend its name",
    "union_tag_not_found": "`type` is missing; say what kind of step it is",
    "string_too_short": "it is empty; give a text",
    "too_short": "it is empty; give at least one",
}

_KINDS = {
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "tuple_type": "a list",
    "list_type": "a list",
    "string_type": "a text",
}


def _sentence(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind == "union_tag_invalid":
        about = error["ctx"]
        return f"type is {about['tag']!r}; give one of {about['expected_tags']}"
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if kind in _SENTENCES:
        return _SENTENCES[kind]
    form = _KINDS.get(kind) or form_of(error.get("ctx", {}).get("pattern"))
    way_out = f"give {form}" if form else in_our_words(error["msg"])
    return f"it is {_shown(error['input'])}; {way_out}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:80] + "…"
