"""Collects the errors of a flow, each with its path in the file and a fix."""

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
)
from leadhand.flows.structure import Fault, FieldFaulty, FlowMalformed, structural_faults
from leadhand.graphs.documents import GraphDocument
from leadhand.graphs.faults import GraphMalformed
from leadhand.models.patterns import form_of
from leadhand.models.problems import LONGEST
from leadhand.models.suggestions import nearest_field
from leadhand.models.validation_messages import NAMED, error_details, plain_message

#: Error types about the number of a list's items.
_COUNTED = ("too_short", "too_long")
#: The most characters of a value that an error shows.
_SHOWN = 80
#: Pydantic appends this to the location of an invalid key.
_KEY = "[key]"
Path = tuple[int | str, ...]


class Found(NamedTuple):
    """The errors as paths and messages, and the flow; None for it if a field is invalid."""

    faults: list[tuple[str, str]]
    flow: FlowDefinition | None


def all_faults(model: type[FlowDefinition], given: JsonValue) -> Found:
    """Returns the errors of a flow document, and the flow: those of fields, without a flow.

    If all fields are valid, they are those of the structure: the first NAMED of them.
    """
    try:
        flow = model.model_validate(given, context=ANY_STRUCTURE)
    except ValidationError as error:
        return Found(faults_of(error, given, model), None)
    of_structure = islice(_of_structure(flow), NAMED)
    return Found([(fault.path, fault.message) for fault in of_structure], flow)


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


def faults_of_graph(error: ValidationError, given: JsonValue) -> list[tuple[str, str]]:
    """Returns the errors of an invalid graph, as paths and messages."""
    causes = (one.get("ctx", {}).get("error") for one in error_details(error))
    structural = [
        (fault.path, str(fault).removeprefix(f"{fault.path}: "))
        for cause in causes
        if isinstance(cause, GraphMalformed)
        for fault in cause.faults
    ]
    of_fields = faults_of(error, given, GraphDocument)
    # The errors of the structure are one error of the whole document, whose path is empty.
    return [one for one in of_fields if one[0] or not structural] + structural
