"""Removes a graph's invalid values, so that the errors of the rest are found with them (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails

from leadhand.graphs.input_schema import declare_inputs
from leadhand.models.validation_messages import error_details

T = TypeVar("T")
Place = tuple[int | str, ...]

#: A removed value may hide errors in others; the next validation finds these.
_ROUNDS = 5
#: The fields of a step that say what it calls, and how.
_OF_CALLS = ("tool", "session", "arguments", "expect")
#: Fields of a step that would be an error without the other one.
_TOGETHER = {"depends_on": "join", "retries": "retry_on"}
_LISTS = (list, tuple)
_STEPS = ("steps",)
_INPUT_REFERENCE = re.compile(r"\$\{\s*inputs\.([A-Za-z_][A-Za-z0-9_]*)")


def read_rest(given: object, read: Callable[[Any], T]) -> tuple[T | None, list[InitErrorDetails]]:
    """Validates a graph with `read`; returns what is valid of it (None: nothing) and all errors."""
    found, given = dict[tuple[Place, str], InitErrorDetails](), declare_inputs(given)
    for _ in range(_ROUNDS):
        try:
            return read(given), list(found.values())
        except ValidationError as error:
            wrong = _causes(error)
        for one in wrong:
            found.setdefault((one["loc"], one["type"]), _copy(one))
        # An error of the whole, such as that they are too many, leaves nothing.
        given = _without(given, [one["loc"] for one in wrong])
        if given is None:
            break
    return None, list(found.values())


def _causes(error: ValidationError) -> list[ErrorDetails]:
    """The errors, without the one that a list has too few items because its items are invalid."""
    wrong = error_details(error)
    is_explained = any(one["loc"][:1] == _STEPS and len(one["loc"]) > 1 for one in wrong)
    return [one for one in wrong if one["loc"] != _STEPS or not is_explained]


def _copy(one: ErrorDetails) -> InitErrorDetails:
    again = InitErrorDetails(type=one["type"], loc=one["loc"], input=one["input"])
    return {**again, "ctx": one["ctx"]} if "ctx" in one else again


def _without(given: object, places: Iterable[Place]) -> dict[str, JsonValue] | None:
    """A copy of the graph without the values at these places; None if its steps are no list."""
    if not isinstance(given, dict):
        return None
    kept = _copy_fields(given)
    steps, schema = kept["steps"], kept.get("input_schema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for place in dict.fromkeys(map(_field_of, places)):
        match place:
            case () | ("steps",):
                return None
            case ("steps", int() as number, *rest):
                steps[number] = _mend_step(steps[number], rest, f"steps[{number}]")
            case ("inputs", str() as name, *_) if isinstance(kept.get("inputs"), dict):
                kept["inputs"].pop(name, None)
                if isinstance(properties, dict):
                    properties.pop(name, None)
            case ("inputs" | "input_schema" as field, *_):
                kept.pop(field, None)
                referenced = _INPUT_REFERENCE.findall(json.dumps(steps, default=str))
                known = kept.get("inputs")
                known = known if isinstance(known, dict) else {}
                kept["inputs"] = {**dict.fromkeys(referenced), **known}
            case _:
                kept.pop(str(place[0]), None)
    return kept


def _copy_fields(given: dict[str, Any]) -> dict[str, Any]:
    """A copy of the graph, of its fields, and of its steps; deeper values are shared."""
    kept = {name: dict(one) if isinstance(one, dict) else one for name, one in given.items()}
    steps = kept.get("steps")
    kept["steps"] = [
        dict(step) if isinstance(step, dict) else step
        for step in (steps if isinstance(steps, _LISTS) else ())
    ]
    schema = kept.get("input_schema")
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        schema["properties"] = dict(schema["properties"])
    return kept


def _field_of(place: Place) -> Place:
    """The field in which a value is invalid, so that each is looked at once.

    >>> _field_of(("steps", 3, "depends_on", 7)), _field_of(("input_schema", "properties", "a"))
    (('steps', 3, 'depends_on', 0), ('input_schema',))
    """
    match place:
        case ("steps", number, field, int(), *_):
            return ("steps", number, field, 0)
        case ("steps", *_):
            return place[:3]
        case ("inputs", *_):
            return place[:2]
        case _:
            return place[:1]


def _mend_step(step: JsonValue, rest: Sequence[int | str], name: str) -> dict[str, JsonValue]:
    """A step without an invalid value; it calls nothing if what it should call is not known."""
    if not isinstance(step, dict):
        return {"name": name, "tool": "noop"}
    match rest:
        case ["name", *_]:
            return {**step, "name": name}
        case ["for_each", *_]:
            return {**step, "for_each": []}
        case ["depends_on", int(), *_] if isinstance(step["depends_on"], list):
            known: list[JsonValue] = [
                one for one in step["depends_on"] if isinstance(one, str) and one.strip()
            ]
            return {**_drop(step, "join"), "depends_on": known}
        case [field, *_] if field not in _OF_CALLS:
            return _drop(step, str(field), _TOGETHER.get(str(field), ""))
        case _:
            return {**_drop(step, *_OF_CALLS), "tool": "noop"}


def _drop(step: dict[str, JsonValue], *fields: str) -> dict[str, JsonValue]:
    for name in fields:
        step.pop(name, None)
    return step
