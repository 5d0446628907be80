"""The records of an agent's activity: texts, tool calls, their results, and notices."""

from __future__ import annotations

import json
import shlex
from typing import Literal, NamedTuple

from pydantic import JsonValue


class AgentText(NamedTuple):
    """A text of the agent, as it is."""

    text: str


class ToolStarted(NamedTuple):
    """The agent calls a tool."""

    #: None if the agent reports no ids; results then belong to the oldest open call.
    id: str | None
    name: str
    input: str


class ToolEnded(NamedTuple):
    """A tool call has a result."""

    id: str | None
    result: str
    failed: bool
    #: The call, if the event of the result repeats it.
    call: ToolStarted | None = None


class Notice(NamedTuple):
    """A retry, a rate limit or an error that the agent reports and that does not end it."""

    kind: Literal["retry", "rate limit", "warning", "error"]
    text: str


Activity = AgentText | ToolStarted | ToolEnded | Notice


def format_input(value: JsonValue) -> str:
    """Formats a tool's input for people; a command is shown alone.

    >>> format_input({"command": "pytest -q", "description": "Run the tests"})
    'pytest -q'
    >>> format_input({"file_path": "a.py", "limit": 3})
    'file_path: a.py, limit: 3'
    """
    if not isinstance(value, dict):
        return format_value(value)
    command = value.get("command", value.get("cmd"))
    if isinstance(command, str):
        return command
    if isinstance(command, list):
        return shlex.join(str(word) for word in command)
    return ", ".join(f"{name}: {format_value(item)}" for name, item in value.items())


def format_value(value: JsonValue) -> str:
    r"""Formats a JSON value as text: the texts of content blocks, else JSON.

    >>> format_value([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    'a\nb'
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = [item.get("text") for item in value if isinstance(item, dict)]
        found = [text for text in texts if isinstance(text, str)]
        if found:
            return "\n".join(found)
    return json.dumps(value, ensure_ascii=False)
