"""Reads activity from the events of Codex (`codex exec --json`); output_parser reads answers."""

from __future__ import annotations

import shlex
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

_SHELLS = ("bash", "sh", "zsh")
_FAILED = ("failed", "declined")


def read_codex(event: dict[str, JsonValue]) -> Iterator[Activity]:
    """Yields the tool calls and notices in an event of Codex; none for other events."""
    kind, item = event.get("type"), event.get("item")
    if kind == "error":
        yield _notice(format_value(event.get("message")))
    elif isinstance(item, dict) and kind in ("item.started", "item.completed"):
        yield from _read_item(item, is_complete=kind == "item.completed")


def _notice(message: str) -> Notice:
    """An error; one that begins with "Reconnecting..." is a retry."""
    start, _, rest = message.partition("Reconnecting... ")
    return Notice("retry", rest) if not start and rest else Notice("error", message)


def _read_item(item: dict[str, JsonValue], *, is_complete: bool) -> Iterator[Activity]:
    kind = item.get("type")
    if kind in ("agent_message", "reasoning", "error"):
        text = format_value(item.get("text") or item.get("message"))
        if is_complete:
            yield Notice("warning", text) if kind == "error" else AgentText(text)
        return
    call = _call(item)
    if call is None:
        return
    if is_complete:
        yield ToolEnded(call.id, _result(item), _has_failed(item), call)
    else:
        yield call


def _call(item: dict[str, JsonValue]) -> ToolStarted | None:
    given = item.get("id")
    id_ = given if isinstance(given, str) else None
    match item.get("type"):
        case "command_execution":
            return ToolStarted(id_, "shell", _command(format_value(item.get("command"))))
        case "file_change":
            return ToolStarted(id_, "file_change", _changes(item.get("changes")))
        case "mcp_tool_call":
            name = f"{item.get('server') or 'mcp'}.{item.get('tool') or 'tool'}"
            return ToolStarted(id_, name, format_input(item.get("arguments")))
        case "web_search":
            return ToolStarted(id_, "web_search", format_value(item.get("query")))
        case _:
            return None


def _command(line: str) -> str:
    """The command without the shell that Codex runs it in.

    >>> _command("/bin/bash -lc 'echo hello; exit 3'")
    'echo hello; exit 3'
    """
    try:
        words = shlex.split(line)
    except ValueError:
        return line
    is_shell = len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS
    return words[2] if is_shell and words[1] in ("-c", "-lc") else line


def _changes(changes: JsonValue) -> str:
    if not isinstance(changes, list):
        return ""
    return ", ".join(f"{c.get('kind')} {c.get('path')}" for c in changes if isinstance(c, dict))


def _result(item: dict[str, JsonValue]) -> str:
    for field in ("aggregated_output", "error", "result"):
        value = item.get(field)
        if isinstance(value, dict):
            value = value.get("message") or value.get("content") or value
        if value:
            return format_value(value)
    code = item.get("exit_code")
    return f"exit code {code}" if code else ""


def _has_failed(item: dict[str, JsonValue]) -> bool:
    code = item.get("exit_code")
    return item.get("status") in _FAILED or bool(item.get("error")) or code not in (None, 0)
