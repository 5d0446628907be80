"""Makes the models' schemas say what the models mean: their comments, and what validators add."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

#: Of these models exactly one of the fields is given.
_ONE_OF = {
    "Doer": ("agent", "command", "callable"),
    "Checker": ("command", "prompt", "callable", "rubric"),
}
#: What belongs to one of the choices only.
_GOES_WITH = {"agent": ("prompt", "rubric"), "model": ("prompt", "rubric")}
#: What validators ask of texts.
_PATTERNS = {
    "PhaseDocument": {"on_fail": "^(stop|continue|retry:([1-9][0-9]{0,2}))$"},
    "LoopDocument": {"cwd": "^/"},
    "WorkflowDocument": {"cwd": "^/"},
}
_SOME_TEXT = r"\S"


def as_meant(schema: Schema, model: type[BaseModel] | None) -> Schema:
    """The schema with the `#:` comment above each field, and without the space around texts."""
    schema = {name: value for name, value in schema.items() if name != "title"}
    if model is None:
        return schema
    told = _comments(model)
    properties = schema.get("properties", {})
    schema["properties"] = {
        name: _text(_untitled(one), model) | ({"description": told[name]} if name in told else {})
        for name, one in properties.items()
    }
    return schema


def as_accepted(name: str, schema: Schema) -> Schema:
    """The schema with what the model's validators demand, or take, beside it."""
    if name in _ONE_OF:
        schema = _one_of(schema, _ONE_OF[name], goes_with=_GOES_WITH if name == "Checker" else {})
    if name in ("LoopDocument", "WorkflowDocument"):
        schema = schema | {"required": ["kind", *schema["required"]]}
    for field, pattern in _PATTERNS.get(name, {}).items():
        schema["properties"][field] = _with_pattern(schema["properties"][field], pattern)
    if name == "LimitBody":
        limits = {"concurrency": {"type": "integer"}, "per_minute": {"type": "number"}}
        either = [{"properties": {n: one}, "required": [n]} for n, one in limits.items()]
        schema = schema | {"anyOf": either}
    if name == "Meant":
        schema = _says_something(schema)
    if name == "Checker":
        text = {"type": "string", "pattern": _SOME_TEXT, "maxLength": 200_000}
        schema = {"anyOf": [schema, {**text, "description": "A command, or `agent: ...`."}]}
    return schema


def _with_pattern(schema: Schema, pattern: str) -> Schema:
    if "anyOf" not in schema:
        return schema | {"pattern": pattern}
    texts = [o | {"pattern": pattern} if o.get("type") == "string" else o for o in schema["anyOf"]]
    return schema | {"anyOf": texts}


def _says_something(schema: Schema) -> Schema:
    told = {name: _never_null(one) for name, one in schema["properties"].items()}
    told["status"] = told["status"] | {"minItems": 1}
    return schema | {"properties": told, "minProperties": 1}


def _one_of(
    schema: Schema, choices: tuple[str, ...], *, goes_with: Mapping[str, tuple[str, ...]]
) -> Schema:
    """One alternative for each choice, in which the others are null or absent."""
    properties: Schema = schema["properties"]
    alternatives = []
    for chosen in choices:
        own = {
            name: _never_null(one) if name == chosen else {"type": "null"}
            if name in choices or chosen not in goes_with.get(name, choices) else one
            for name, one in properties.items()
        }  # fmt: skip
        alternatives.append(
            {"type": "object", "properties": own, "required": [chosen],
             "additionalProperties": False}
        )  # fmt: skip
    return {"oneOf": alternatives, "description": schema.get("description", "")}


def _never_null(schema: Schema) -> Schema:
    others = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return kept | others[0] if others else schema


def _text(schema: Schema, model: type[BaseModel]) -> Schema:
    """Where space around a text is taken off, a text of nothing else is empty."""
    if not model.model_config.get("str_strip_whitespace"):
        return schema
    inner: Schema = {k: _text(v, model) for k, v in schema.items() if k == "items"}
    inner |= {k: [_text(one, model) for one in v] for k, v in schema.items() if k == "anyOf"}
    wanted = schema.get("type") == "string" and schema.get("minLength") and "pattern" not in schema
    return schema | inner | ({"pattern": _SOME_TEXT} if wanted else {})


def _untitled(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name != "title"}


def _comments(model: type[BaseModel]) -> dict[str, str]:
    """The `#:` comments above the fields of a model and of those that it builds on."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if issubclass(one, BaseModel) and one is not BaseModel:
            found |= dict(_own_comments(one))
    return found


def _own_comments(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    try:
        lines, _ = inspect.getsourcelines(model)
    except (OSError, TypeError):  # made at run time, as a generic's kind is
        return
    [tree] = ast.parse(textwrap.dedent("".join(lines))).body
    for member in getattr(tree, "body", []):
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            above = _above(lines[: member.lineno - 1])
            if above:
                yield member.target.id, above


def _above(lines: list[str]) -> str:
    told: list[str] = []
    for line in reversed(lines):
        if not line.strip().startswith("#: "):
            break
        told.insert(0, line.strip().removeprefix("#: "))
    return " ".join(told)
