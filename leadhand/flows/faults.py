"""Collects all errors of a flow, each with its path in the file and a fix.

A field or step with an error is replaced by a neutral one, so that the rest is validated too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from leadhand.flows.documents import (
    ANY_STRUCTURE,
    FlowDefinition,
    is_input_name,
)
from leadhand.flows.steps import FieldFaulty, FlowMalformed
from leadhand.flows.structure import INPUT_REFERENCE, Fault, structural_faults
from leadhand.models.patterns import form_of
from leadhand.models.problems import LONGEST
from leadhand.models.suggestions import nearest_field
from leadhand.models.validation_messages import COUNTED, NAMED, error_details, plain_message

#: Fields that hold lists of steps.
_LISTS = ("steps", "then", "else")

#: Error types about the number of a list's items.
_COUNTED = ("too_short", "too_long")
#: The most characters of a value that an error shows.
_SHOWN = 80
#: Pydantic appends this to the location of an invalid key.
_KEY = "[key]"

#: Validation rounds, each without the values that were invalid before.
_ROUNDS = 5

Path = tuple[int | str, ...]


class Found(NamedTuple):
    """The errors as paths and messages, and the flow as far as it could be parsed."""

    faults: list[tuple[str, str]]
    flow: FlowDefinition | None


def all_faults(model: type[FlowDefinition], given: JsonValue) -> Found:
    """Returns the errors of a flow document, and the flow; None for it if it cannot be built.

    Those of its fields come first, then those of its structure: the first NAMED of each.
    """
    found, here = list[tuple[str, str]](), given
    # An invalid value that is removed may hide errors within it.
    for whole_steps in (False, *[True] * _ROUNDS):
        try:
            flow = model.model_validate(here, context=ANY_STRUCTURE)
        except ValidationError as error:
            found = found or faults_of(error, given, model)
            if error.error_count() > COUNTED:
                break
            here = _put_aside(error, here, whole_steps=whole_steps)
        else:
            of_structure = islice(_of_structure(flow), NAMED)
            found += [(fault.path, fault.message) for fault in of_structure]
            return Found(list(dict.fromkeys(found)), flow)
    return Found(found, None)


def _of_structure(flow: FlowDefinition) -> Iterator[Fault]:
    yield from structural_faults(flow)
    for name, other in getattr(flow, "flows", {}).items():
        for fault in structural_faults(other):
            yield fault._replace(path=f"flows.{name}.{fault.path}")


def fault_of(error: ValidationError, given: JsonValue, model: type[BaseModel]) -> tuple[str, str]:
    """Returns the first error of a validation: its path in the input, and a message."""
    return _fault(error_details(error)[0], given, model)


def _fault(first: ErrorDetails, given: JsonValue, model: type[BaseModel]) -> tuple[str, str]:
    cause = first.get("ctx", {}).get("error")
    path = path_of(first["loc"], given)
    if isinstance(cause, FlowMalformed):
        return f"{path}.{cause.fault.path}".removeprefix("."), cause.fault.message
    if isinstance(cause, FieldFaulty):
        return f"{path}.{cause.field}".removeprefix("."), cause.message
    return path, _sentence(first, model)


def faults_of(
    error: ValidationError, given: JsonValue, model: type[BaseModel]
) -> list[tuple[str, str]]:
    """Returns the first errors of a validation, as paths and messages, in order."""
    return [_fault(one, given, model) for _, one in _causes(error, given)[:NAMED]]


def _causes(error: ValidationError, given: JsonValue) -> list[tuple[Path, ErrorDetails]]:
    """Returns the errors with their places, without those that invalid items of a list explain."""
    wrong = [(_real(one["loc"], given), one) for one in error_details(error)]
    parts = {place[:end] for place, _ in wrong for end in range(len(place))}
    return [
        (place, one) for place, one in wrong if place not in parts or one["type"] not in _COUNTED
    ]


def path_of(where: Sequence[int | str], given: JsonValue) -> str:
    """Converts the location of a pydantic error to a path in the input, such as `steps[0].breakOn`.

    >>> given = {"steps": [{"type": "startLoop", "steps": [{"type": "break"}]}]}
    >>> path_of(("steps", 0, "startLoop", "steps", 0, "break", "breakOn"), given)
    'steps[0].steps[0].breakOn'
    """
    parts = (f"[{p}]" if isinstance(p, int) else f".{p}" for p in _real(where, given))
    return "".join(parts).removeprefix(".")


class _Owner(NamedTuple):
    """The innermost step or flow that has an error, and the field."""

    path: Path
    key: str | None

    @property
    def is_flow(self) -> bool:
        return not self.path or isinstance(self.path[-1], str)


def _put_aside(error: ValidationError, given: JsonValue, *, whole_steps: bool) -> JsonValue:
    """A copy of the flow without the invalid fields, or without the steps that have them."""
    kept: JsonValue = json.loads(json.dumps(given))
    owners = {_owner(place): one["type"] == "missing" for place, one in _causes(error, given)}
    # Inner ones first: the replacement of an outer step keeps its lists of steps.
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
    """The parts of a location that exist in the input, without pydantic's union members."""
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
    """Whether a part is a union member: a step's type directly after its index, or a kind."""
    if not isinstance(here, dict):
        return False
    is_type = here.get("type") == part and isinstance(before, int)
    return is_type or (here.get("kind") == part and part not in here)


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
    """Remove a field of a flow; inputs that its texts use count as defined."""
    if not isinstance(flow, dict):
        return
    flow.pop(str(key), None)
    if key == "steps":
        flow["steps"] = [_WAIT]
    if key == "inputs":
        asked = INPUT_REFERENCE.findall(json.dumps(flow, default=str))
        flow["inputs"] = {name: "" for name in asked if is_input_name(name)}


def _nothing(step: JsonValue) -> JsonValue:
    """A valid step of the same type that keeps the inner steps."""
    was = step if isinstance(step, dict) else {}
    kept = {"label": was["label"]} if isinstance(was.get("label"), str) else {}
    match was.get("type"):
        case "startLoop":
            return {"type": "startLoop", **kept, **_lists(was, "steps")}
        case "if":
            inside = _lists(was, "then", "else")
            return {"type": "if", **kept, "command": "true", "then": [_WAIT], **inside}
        case "parallel" if _has_branches(was):
            return {"type": "parallel", **kept, "branches": was["branches"]}
        case "break" | "continue" as type_:
            return {"type": type_, **kept, "command": "true", f"{type_}On": "yes"}
        case "endLoop":
            return {"type": "endLoop"}
        case _:
            return {**_WAIT, **kept}


def _has_branches(step: dict[str, JsonValue]) -> bool:
    """Whether a parallel step has branches with lists of steps, which are kept."""
    branches = step.get("branches")
    if not isinstance(branches, list) or len(branches) < 2:
        return False
    return all(
        isinstance(one, dict) and one.keys() == {"steps"} and isinstance(one["steps"], list)
        and one["steps"]
        for one in branches
    )  # fmt: skip


_WAIT: dict[str, JsonValue] = {"type": "wait", "seconds": 1}


def _lists(step: dict[str, JsonValue], *names: str) -> dict[str, JsonValue]:
    return {name: step[name] for name in names if isinstance(step.get(name), list) and step[name]}


_SENTENCES = {
    "missing": "it is missing; add this field",
    "extra_forbidden": "there is no such field; remove it, or correct its name",
    "union_tag_not_found": "`type` is missing; give the type of the step",
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
    "bool_type": "true or false, without quotation marks",
}


def _sentence(error: ErrorDetails, model: type[BaseModel]) -> str:
    kind = error["type"]
    near = nearest_field(model, error["loc"]) if kind == "extra_forbidden" else None
    if near is not None:
        return f"there is no such field; did you mean {near}?"
    if kind == "union_tag_invalid":
        about = error["ctx"]
        return f"type is {about['tag'][:_SHOWN]!r}; give one of {about['expected_tags']}"
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")[:LONGEST]
    if kind in _SENTENCES:
        return _SENTENCES[kind]
    form = _KINDS.get(kind) or form_of(error.get("ctx", {}).get("pattern"))
    way_out = f"give {form}" if form else plain_message(error["msg"])
    return f"it is {_shown(error['input'])}; {way_out}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
