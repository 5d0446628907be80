"""Describes the arguments of a tool by its JSON Schema (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from leadhand.models.views.fleet import ToolParameter

_Schema = Mapping[str, JsonValue]
#: Characters of the name of a type.
_SHOWN = 80


def parameters_of(schema: _Schema) -> list[ToolParameter]:
    """Returns the arguments that a JSON Schema of an object declares, in order.

    >>> [one] = parameters_of({"properties": {"n": {"type": "integer"}}, "required": ["n"]})
    >>> one.name, one.annotation, one.required
    ('n', 'integer', True)
    """
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    needed = required if isinstance(required, list) else []
    return [
        ToolParameter(
            name=name,
            annotation=type_name(one) if isinstance(one, dict) else None,
            required=name in needed,
        )
        for name, one in properties.items()
    ]


def type_name(schema: _Schema) -> str | None:
    """Returns a short name of the type in a JSON Schema; None for any value.

    >>> type_name({"type": "array", "items": {"type": "string"}}), type_name({"enum": ["a", 1]})
    ('array of string', '"a" | 1')
    """
    choices, members, kind = schema.get("enum"), schema.get("anyOf"), schema.get("type")
    if isinstance(choices, list):
        return " | ".join(json.dumps(one, ensure_ascii=False) for one in choices)[:_SHOWN]
    if isinstance(members, list):
        names = [type_name(one) or "any" for one in members if isinstance(one, dict)]
        return " | ".join(names)[:_SHOWN]
    if isinstance(kind, list):
        return " | ".join(map(str, kind))[:_SHOWN]
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict) and type_name(items):
        return f"array of {type_name(items)}"[:_SHOWN]
    return None if kind is None else str(kind)[:_SHOWN]
