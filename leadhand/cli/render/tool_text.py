"""Formats a tool for the terminal (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from leadhand.cli.render.tables import table
from leadhand.models.json_schema import schema_of
from leadhand.models.text import plain
from leadhand.models.views.fleet import ToolView


def tool_page(tool: ToolView) -> Iterator[str]:
    """Formats a tool with its arguments, the places that have it, and an example call."""
    yield f"{tool.name}: {tool.about}" if tool.about else tool.name
    yield f"kind: {tool.kind}"
    if tool.inline_s is not None:
        yield f"runs inside the worker, for at most {tool.inline_s:g} s"
    if tool.parameters:
        rows = []
        for one in tool.parameters:
            schema = schema_of(tool.input_schema, one.name)
            kind = one.annotation or "any"
            rows.append([one.name, kind, _default(schema, required=one.required), _about(schema)])
        yield from table(["ARGUMENT", "TYPE", "DEFAULT", "ABOUT"], rows)
    if tool.takes_any:
        yield "it takes arguments of any name"
    yield f"usable at: {' '.join(tool.usable_at) or 'nowhere'}"
    for place, why in tool.why_not.items():
        yield f"  not at {plain(place)}: {plain(why, most=400)}"
    needed = "".join(f" --arg {one.name}=..." for one in tool.parameters if one.required)
    yield f"call it with: leadhand tools call {tool.name}{needed}"


def _default(schema: Mapping[str, JsonValue], *, required: bool) -> str:
    if required:
        return "required"
    return json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "optional"


def _about(schema: Mapping[str, JsonValue]) -> str:
    return str(schema.get("description", ""))
