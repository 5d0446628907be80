"""Reads the activity of an agent from its JSON lines.

The events of Claude Code and Codex are recognised by their form, as an agent of any name may run
them. Other agents name the fields of their events in `agents.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

from workers.agents.activity import (
    Activity,
    AgentText,
    Notice,
    ToolEnded,
    ToolStarted,
    format_input,
    format_value,
)
from workers.agents.claude_events import read_claude
from workers.agents.codex_events import read_codex
from workers.registry.agent_entry import ActivityPaths
from workers.registry.json_path import find


def read_activity(paths: ActivityPaths | None, event: JsonValue) -> Iterator[Activity]:
    """Yields the tool calls and texts in an event of an agent's output."""
    if not isinstance(event, dict):
        return
    if paths is not None:
        yield from _read_by_paths(paths, event)
        return
    yield from read_claude(event)
    yield from read_codex(event)


def _read_by_paths(paths: ActivityPaths, event: JsonValue) -> Iterator[Activity]:
    text, name = _first(paths.text, event), _first(paths.tool, event)
    result, failed = _first(paths.result, event), _first(paths.failed, event)
    given = _first(paths.id, event)
    id_ = None if given is None else format_value(given)
    if text is not None:
        yield AgentText(format_value(text))
    call = None
    if name is not None:
        call = ToolStarted(id_, format_value(name), format_input(_first(paths.input, event)))
    if result is not None or failed is not None:
        yield ToolEnded(id_, format_value(result), bool(failed), call)
    elif call is not None:
        yield call
    if (retry := _first(paths.retry, event)) is not None:
        yield Notice("retry", format_value(retry))
    if (limit := _first(paths.rate_limit, event)) is not None:
        yield Notice("rate limit", format_value(limit))


def _first(paths: tuple[str, ...], event: JsonValue) -> JsonValue:
    """The value at the first path that has one."""
    return next((value for path in paths if (value := find(path, event)) is not None), None)
