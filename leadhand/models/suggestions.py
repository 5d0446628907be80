"""Suggests the known name that a misspelt one probably means (pure)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel

#: How alike two names must be, from 0 to 1.
_LIKENESS = 0.6
_Schema = Mapping[str, Any]
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that is most similar to this one; None if none is.

    >>> nearest("spown", ["spawn", "show"]), nearest("agenttype", ["agentType"]), nearest("x", [])
    ('spawn', 'agentType', None)
    """
    by_case = {one.lower().replace("_", ""): one for one in sorted(known)}
    wanted = name.lower().replace("_", "")
    found = get_close_matches(wanted, list(by_case), n=1, cutoff=_LIKENESS)
    return by_case[found[0]] if found else None


def nearest_field(model: type[BaseModel], place: Sequence[int | str]) -> str | None:
    """Returns the field of a model that an unknown field name probably means; None if none is near.

    `place` is the location of the error as pydantic reports it, with the names of union members.

    >>> from leadhand.models.documents import WorkflowDocument
    >>> nearest_field(WorkflowDocument, ("phases", 0, "max_iteration"))
    'max_iterations'
    """
    return nearest(str(place[-1]), fields_at(model, place)) if place else None


def fields_at(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Returns the names of the known fields where an unknown one was found, in model order."""
    root = _schema(model)
    here = [*_members(root, root)]
    for part in place[:-1]:
        here = [*_step_into(root, here, part)] or here
    return [*dict.fromkeys(name for schema in here for name in schema.get("properties", {}))]


def suggest_keywords(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Decorates a function so that its error for an unknown keyword names the nearest one.

    >>> @suggest_keywords
    ... def paint(*, colour: str) -> None: ...
    >>> paint(color="red")
    Traceback (most recent call last):
    TypeError: paint() got an unexpected keyword argument 'color'; did you mean 'colour'?
    """
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @wraps(function)
    def checked(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        for name in kwargs.keys() - set(known):
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
            raise TypeError(
                f"{function.__qualname__}() got an unexpected keyword argument {name!r}; {hint}"
            )
        return function(*args, **kwargs)

    return checked


@cache
def _schema(model: type[BaseModel]) -> _Schema:
    return model.model_json_schema(by_alias=True)


def _step_into(root: _Schema, here: Iterable[_Schema], part: int | str) -> Iterator[_Schema]:
    """The schemas of the values at an index, a field or a union member's name."""
    for schema in here:
        if isinstance(part, int):
            below = [schema.get("items")]
        elif part in schema.get("properties", {}):
            below = [schema["properties"][part]]
        elif _is_tagged(schema, part):
            below = [schema]
        else:
            keyed = schema.get("patternProperties", {}).values()
            below = [schema.get("additionalProperties"), *keyed]
        for one in below:
            if isinstance(one, Mapping):
                yield from _members(root, one)


def _is_tagged(schema: _Schema, tag: str) -> bool:
    """Whether the schema is the union member with this tag in its `type`, `kind` or `op`."""
    fields = schema.get("properties", {})
    return any(fields.get(name, {}).get("const") == tag for name in ("type", "kind", "op"))


def _members(root: _Schema, schema: _Schema) -> Iterator[_Schema]:
    """The schema itself without references, or each member of a union."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        yield from _members(root, root["$defs"][name])
        return
    members = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    for member in members:
        yield from _members(root, member)
    if not members:
        yield schema
