"""Adds comments and validators' rules to the JSON schemas of models."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from app.security.api_tokens import Scope
from leadhand.errors import StoreState
from leadhand.models.reasons import ReasonCode

Schema = dict[str, Any]

#: Models of which exactly one of these fields must be set.
_ONE_OF = {
    "Doer": ("agent", "command", "callable"),
    "Checker": ("command", "prompt", "callable", "tool", "rubric"),
}
#: Fields that are allowed with some of the choices only.
_GOES_WITH = {"agent": ("prompt", "rubric"), "model": ("prompt", "rubric")}
#: Patterns that validators require.
_PATTERNS = {
    "PhaseDocument": {"on_fail": "^(stop|continue|retry:([1-9][0-9]{0,2}))$"},
    "LoopDocument": {"cwd": "^/"},
    "WorkflowDocument": {"cwd": "^/"},
    "PlanDocument": {"cwd": "^/"},
    "GraphDocument": {"cwd": "^/"},
}
#: Members of a union that is discriminated by `op`.
_OPERATIONS = {"AddTask", "ChangeTask", "DropTask", "MoveTask", "RetryTask"}
_SOME_TEXT = r"\S"
#: Closed sets of words. Clients read them as text, because a newer server may send others.
_WORDS: Mapping[str, Mapping[str, type[StrEnum]]] = {
    "Reason": {"code": ReasonCode},
    "TokenView": {"scopes": Scope},
    "NewToken": {"scopes": Scope},
}
#: The same where the words have no schema of their own.
_INLINE_WORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "StoreView": {"state": get_args(StoreState)},
}
#: The sets of such words; each has a schema of its own.
WORD_SETS = (ReasonCode, Scope)


def with_comments(schema: Schema, model: type[BaseModel] | None) -> Schema:
    """Returns a schema in which each field's `#:` comment in the source is its description."""
    schema = {name: value for name, value in schema.items() if name != "title"}
    if model is None:
        return schema
    comments = _comments(model)
    properties = schema.get("properties", {})
    schema["properties"] = {
        name: _text(_without_title(one), model)
        | ({"description": comments[name]} if name in comments else {})
        for name, one in properties.items()
    }
    return schema


def with_validators(name: str, schema: Schema) -> Schema:
    """Returns a schema with the rules that a model's validators enforce, by the model's name."""
    if name in _ONE_OF:
        schema = _one_of(schema, _ONE_OF[name], goes_with=_GOES_WITH if name == "Checker" else {})
    if name in ("LoopDocument", "WorkflowDocument", "GraphDocument", "PlanDocument"):
        schema = schema | {"required": ["kind", *schema["required"]]}
    _narrow(name, schema.get("properties", {}))
    if name in _OPERATIONS:
        schema = schema | {"required": ["op", *schema["required"]]}
    if name == "Problem":
        plan = {"anyOf": [{"$ref": "#/components/schemas/PlanView"}, {"type": "null"}]}
        schema["properties"]["plan"] |= plan
    if name == "LimitBody":
        limits = {"concurrency": {"type": "integer"}, "per_minute": {"type": "number"}}
        either = [{"properties": {n: one}, "required": [n]} for n, one in limits.items()]
        schema = schema | {"anyOf": either}
    if name == "Meant":
        schema = _require_one_field(schema)
    if name == "Checker":
        text = {"type": "string", "pattern": _SOME_TEXT, "maxLength": 200_000}
        schema = {"anyOf": [schema, {**text, "description": "A command, or `agent: ...`."}]}
    return schema


def _narrow(name: str, properties: Schema) -> None:
    """Add patterns and enums to the schemas of a model's fields."""
    for field, pattern in _PATTERNS.get(name, {}).items():
        properties[field] = _with_pattern(properties[field], pattern)
    for field, words in _WORDS.get(name, {}).items():
        properties[field] = _of_words(properties[field], words)
    for field, texts in _INLINE_WORDS.get(name, {}).items():
        properties[field] |= {"enum": [*texts]}


def _of_words(schema: Schema, words: type[StrEnum]) -> Schema:
    """The schema of a text, or list of texts, with only these words."""
    if schema.get("type") == "array":
        return schema | {"items": _of_words(schema["items"], words)}
    return {"$ref": f"#/components/schemas/{words.__name__}"}


def _with_pattern(schema: Schema, pattern: str) -> Schema:
    if "anyOf" not in schema:
        return schema | {"pattern": pattern}
    texts = [o | {"pattern": pattern} if o.get("type") == "string" else o for o in schema["anyOf"]]
    return schema | {"anyOf": texts}


def _require_one_field(schema: Schema) -> Schema:
    comments = {name: _never_null(one) for name, one in schema["properties"].items()}
    comments["status"] = comments["status"] | {"minItems": 1}
    return schema | {"properties": comments, "minProperties": 1}


def _one_of(
    schema: Schema, choices: tuple[str, ...], *, goes_with: Mapping[str, tuple[str, ...]]
) -> Schema:
    """One alternative per choice, in which the others are null or absent."""
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
    """Requires a non-blank text if the model strips white space."""
    if not model.model_config.get("str_strip_whitespace"):
        return schema
    inner: Schema = {k: _text(v, model) for k, v in schema.items() if k == "items"}
    inner |= {k: [_text(one, model) for one in v] for k, v in schema.items() if k == "anyOf"}
    wanted = schema.get("type") == "string" and schema.get("minLength") and "pattern" not in schema
    return schema | inner | ({"pattern": _SOME_TEXT} if wanted else {})


def _without_title(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name != "title"}


def _comments(model: type[BaseModel]) -> dict[str, str]:
    """The `#:` comments of the fields of a model and its base classes."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if issubclass(one, BaseModel) and one is not BaseModel:
            found |= _own_comments(one)
    return found


def _own_comments(model: type[BaseModel]) -> Mapping[str, str]:
    return _comments_in(model.__module__).get(model.__qualname__, {})


@cache
def _comments_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """The `#:` comments of the fields of a module's classes, by class and field.

    Each module is parsed once: `inspect.getsource` parses it for every class.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        return {}
    text = Path(path).read_text()
    lines = text.splitlines()
    return {
        node.name: dict(_comments_of(node, lines))
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    }


def _comments_of(node: ast.ClassDef, lines: list[str]) -> Iterator[tuple[str, str]]:
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            above = _above(lines[: member.lineno - 1])
            if above:
                yield member.target.id, above


def _above(lines: list[str]) -> str:
    comments: list[str] = []
    for line in reversed(lines):
        if not line.strip().startswith("#: "):
            break
        comments.insert(0, line.strip().removeprefix("#: "))
    return " ".join(comments)
