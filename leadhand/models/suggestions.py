"""Suggests the known name that a misspelt one probably means (pure)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache, lru_cache, wraps
from heapq import nlargest
from itertools import islice
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel

#: How alike two names must be, from 0 to 1.
_LIKENESS = 0.6
#: The most characters of a name that is compared, the most names that it is compared with by their
#: letters, and how many of those by the order of their letters, which is a thousand times slower.
_LONGEST, _COMPARED, _ORDERED = 64, 200, 5
#: The most known names that are looked through.
_KNOWN = 2_000
#: The most known names that an error lists.
LISTED = 20
_Schema = Mapping[str, Any]
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that is most similar to this one; None if none is.

    >>> nearest("spown", ["spawn", "show"]), nearest("agenttype", ["agentType"]), nearest("x", [])
    ('spawn', 'agentType', None)
    """
    wanted = _folded(name[: _LONGEST + 1])
    if len(name) > _LONGEST or not wanted:
        return None
    short = (one for one in islice(known, _KNOWN) if len(one) <= _LONGEST)
    by_case = {_folded(one): one for one in sorted(short)}
    if wanted in by_case:
        return by_case[wanted]
    likely = [one for one in by_case if _lengths_fit(wanted, one)]
    if len(likely) > _COMPARED:
        likely = [one for one in likely if one[0] == wanted[0]][:_COMPARED]
    matcher = SequenceMatcher(b=wanted)

    def likeness(one: str, *, in_order: bool) -> tuple[float, str]:
        matcher.set_seq1(one)
        return (matcher.ratio() if in_order else matcher.quick_ratio()), one

    first = nlargest(_ORDERED, (likeness(one, in_order=False) for one in likely))
    near = (likeness(one, in_order=True) for score, one in first if score >= _LIKENESS)
    score, found = max(near, default=(0.0, ""))
    return by_case[found] if score >= _LIKENESS else None


def listed(names: Iterable[str]) -> str:
    """Formats known names for an error: the first ones, and how many more there are.

    >>> listed(["a", "b"]), listed([]), listed(map(str, range(25)))[-15:]
    ('a, b', 'none', ', 19 and 5 more')
    """
    known = [*names]
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return ", ".join(one[:_LONGEST] for one in known[:LISTED]) + more if known else "none"


def _folded(name: str) -> str:
    return name.lower().replace("_", "")


def _lengths_fit(one: str, other: str) -> bool:
    """Whether two names of these lengths can be alike at all."""
    return bool(other) and 2 * min(len(one), len(other)) >= _LIKENESS * (len(one) + len(other))


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
    around = tuple(0 if isinstance(part, int) else part[:_LONGEST] for part in place[:-1])
    return [*_fields_in(model, around)]


@lru_cache(maxsize=500)
def _fields_in(model: type[BaseModel], around: tuple[int | str, ...]) -> tuple[str, ...]:
    root = _schema(model)
    here = [*_members(root, root)]
    for part in around:
        here = [*_step_into(root, here, part)] or here
    return tuple(dict.fromkeys(name for schema in here for name in schema.get("properties", {})))


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
