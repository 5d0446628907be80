"""The records of an agent's activity: texts, tool calls, their results, and notices."""

from __future__ import annotations

import json
import shlex
from typing import Literal, NamedTuple

from pydantic import JsonValue

from leadhand.models.views.step import ToolCallView
from workers.live_output import READ_CHARACTERS, LiveOutput

#: Tool calls of one attempt that are recorded; later ones are counted.
CALLS = 100
#: Characters of the name of a tool, and of the id of a call.
_NAME_LIMIT = 100
_ID_LIMIT = 200
#: Calls without a result that are remembered.
_OPEN_CALLS = 1_000
#: Characters of an input or result in the live output.
_SHOWN = 200


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


class _OpenCall:
    """A call without a result: its name, and its place among the recorded calls."""

    def __init__(self, name: str, index: int | None) -> None:
        self.name = name
        self.index = index


class ActivityLog:
    """The activity of one run."""

    def __init__(self, live: LiveOutput | None = None) -> None:
        self._live = live
        self._calls: list[ToolCallView] = []
        self._open: dict[str, _OpenCall] = {}
        self._started = 0
        self._failed = 0

    def take(self, activity: Activity) -> None:
        """Record an activity of the agent and write it to the live output."""
        match activity:
            case AgentText():
                self._show(activity.text)
            case ToolStarted():
                self._start(activity)
            case ToolEnded():
                self._end(activity)
            case Notice():
                self._show(f"! {activity.kind}: ", activity.text)

    @property
    def calls(self) -> tuple[ToolCallView, ...] | None:
        """Return the agent's first tool calls, not redacted; None if there was none."""
        return tuple(self._calls) or None

    @property
    def tools_failed(self) -> int | None:
        """Return the number of tool calls if all of them failed, else None."""
        return self._failed if 0 < self._failed == self._started else None

    def _start(self, call: ToolStarted) -> str:
        """Record the call under its id, or a number of its own; return that key."""
        key = f"#{self._started}" if call.id is None else call.id[:_ID_LIMIT]
        name = call.name[:_NAME_LIMIT]
        if key in self._open:
            return key
        self._started += 1
        index = None
        if len(self._calls) < CALLS:
            index = len(self._calls)
            self._calls.append(ToolCallView(name=name, input=_start_of(call.input)))
        if len(self._open) < _OPEN_CALLS:
            self._open[key] = _OpenCall(name, index)
        self._show(f"> {name}: ", call.input)
        return key

    def _end(self, result: ToolEnded) -> None:
        call = self._open.pop(self._key_of(result), None)
        self._failed += result.failed
        name = f"{call.name}: " if call is not None else ""
        self._show(f"< {'failed: ' if result.failed else ''}{name}", result.result or "no output")
        if call is not None and call.index is not None:
            ended = {"result": _start_of(result.result), "failed": result.failed}
            self._calls[call.index] = self._calls[call.index].model_copy(update=ended)

    def _key_of(self, result: ToolEnded) -> str:
        """The key of the result's call, which is started if it was not reported before."""
        if result.call is not None:
            return self._start(result.call)
        if result.id is not None:
            return result.id[:_ID_LIMIT]
        return next(iter(self._open), "")

    def _show(self, head: str, text: str | None = None) -> None:
        if self._live is None:
            return
        if text is None:
            self._live.write_text(head)
        else:
            self._live.write_line(head, text, limit=_SHOWN)


def _start_of(text: str) -> str:
    """So much of a text as its redaction reads."""
    return text[: READ_CHARACTERS + 1]
