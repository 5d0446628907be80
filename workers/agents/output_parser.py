"""Parses the output of an agent's program while it runs: answer, thread id, cost and tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import JsonValue

from app.core.outcomes import Busy, Usage
from app.truncate import cut
from workers.agents.activity import (
    Activity,
    ActivityLog,
    AgentText,
    Notice,
    ToolEnded,
    ToolStarted,
    format_input,
    format_value,
)
from workers.agents.codex import find_sandbox_error, read_codex
from workers.agents.usage import Meter
from workers.live_output import LiveOutput
from workers.processes.output import LINE_LIMIT, Captured, Lines
from workers.registry.agent_entry import ActivityPaths, Agent, find
from workers.registry.errors import OutputUnreadable

#: Bytes at the end of the output that are searched for a JSON object.
SEARCHED_BYTES = 16 * 1024 * 1024
#: Characters of one text that a session stores.
TEXT_LIMIT = 64_000
#: The same for a turn of a conversation that is replayed to a model in later turns.
TURN_LIMIT = 1_000_000
#: The longest retry-after that is honoured, in seconds.
WAIT_LIMIT_S = 3600.0
#: Characters of a thread id; a longer one is ignored.
THREAD_LIMIT = 500


#: Messages in a row after which a program that waits for its model is ended. Codex prints the third
#: some 20 s after the first: a server that is restarted is back by then.
WAITS = 3
#: The prefix of errors from the sandbox program that Codex uses on Linux.
_SANDBOX = "bwrap: "
_HINT = (
    "set CODEX_HOME to a folder outside of the temporary directory and run Codex where bubblewrap"
    " works, or add --sandbox danger-full-access to its entry if something else confines it"
)


class OutputParser:
    """Parses the output of one run; malformed output is ignored, never an error."""

    def __init__(
        self,
        agent: Agent,
        *,
        before: Usage | None,
        on_spent: Callable[[Usage], None],
        limit: int = TEXT_LIMIT,
        codex_home: Path | None = None,
        live: LiveOutput | None = None,
    ) -> None:
        self._agent = agent
        #: The most characters of an answer that are stored.
        self.limit = limit
        self._meter = Meter(agent, before=before)
        self._on_spent = on_spent
        self._lines = Lines(self._take_line, skip=self._skip_line)
        self._skipped = 0
        self._codex = CodexTools(codex_home)
        #: Its texts and tool calls; shown by `live`.
        self.activity = ActivityLog(live)
        self._answer: str | None = None
        self._failed: str | None = None
        self._is_busy = False
        self._waits = 0
        self._after_s: float | None = None
        self.final = False
        self.thread: str | None = None

    def write(self, chunk: bytes) -> None:
        """Take the next chunk of output; JSON lines are parsed at once, other output is ignored."""
        if self._agent.output == "lines":
            self._lines.write(chunk)

    def answer(self, output: Captured) -> str:
        """Return the whole answer of a finished run. Raises OutputUnreadable."""
        self._lines.close()
        if self._agent.output == "json":
            self._take(_object(output))
        if self._failed is None and (fault := self._codex.find_fault()) is not None:
            self._failed, self.final = fault, True
        if self._failed is not None:
            raise OutputUnreadable(f"it reports an error: {cut(self._failed, 2_000)}")
        if self._agent.output == "text":
            return _whole(output).strip()
        if self._answer is None:
            raise OutputUnreadable(self._why_no_answer(output))
        return self._answer.strip()

    @property
    def failure(self) -> str | None:
        """Return the error that the agent reported, if any."""
        return self._failed

    def is_stuck(self) -> bool:
        """Whether the program waits for its model without end."""
        return self._waits >= WAITS

    @property
    def usage(self) -> Usage | None:
        """Return cost and tokens of this run so far."""
        return self._meter.usage

    @property
    def conversation_usage(self) -> Usage | None:
        """Return cost and tokens of the whole conversation, if the agent reports them."""
        return self._meter.conversation_usage

    @property
    def busy(self) -> Busy | None:
        """Return how long to wait for a rate-limited agent; None if it is not busy."""
        if not self._is_busy:
            return None
        return Busy(after_s=self._after_s, tries=self._agent.busy_tries)

    def _take_line(self, line: bytes) -> None:
        if line.lstrip()[:1] == b"{":
            event = _parse_json(line.decode(errors="replace"))
            self._take(event)
            for activity in read_activity(self._agent.activity, event):
                self.activity.take(activity)

    def _skip_line(self, size: int) -> None:
        self._skipped += 1
        text = f"a line of {size / 1e6:.1f} MB was skipped; lines are read up to {LINE_LIMIT} bytes"
        self.activity.take(Notice("warning", text))

    def _take(self, event: JsonValue) -> None:
        if not isinstance(event, dict):
            return
        agent = self._agent
        answer = _text(agent, "answer", event)
        self._answer = self._answer if answer is None else answer
        self._failed = _text(agent, "failed", event) or self._failed
        self.final = self.final or any(find(path, event) is not None for path in agent.final)
        self._take_busy(event)
        self._take_waits(event)
        self._codex.take(event)
        thread = _text(agent, "thread", event)
        if thread is not None and 0 < len(thread) <= THREAD_LIMIT:
            self.thread = thread
        if self._meter.take(event) and self._meter.usage is not None:
            self._on_spent(self._meter.usage)

    def _take_busy(self, event: JsonValue) -> None:
        agent = self._agent
        if not any(find(path, event) is not None for path in agent.busy):
            return
        self._is_busy = True
        wait = find(agent.retry_after_s, event) if agent.retry_after_s is not None else None
        if isinstance(wait, int | float) and wait >= 0:
            self._after_s = min(float(wait), WAIT_LIMIT_S)

    def _take_waits(self, event: JsonValue) -> None:
        found = (find(path, event) for path in self._agent.waits)
        message = next((text for text in found if isinstance(text, str)), None)
        self._waits = self._waits + 1 if message is not None else 0
        if self.is_stuck():
            self._failed, self._is_busy = message, True

    def _why_no_answer(self, output: Captured) -> str:
        if not output.text.strip():
            return "it printed nothing"
        if self._agent.output == "json" and _object(output) is None:
            return f"its output is not JSON: {cut(output.text.strip(), 500)!r}"
        skipped = (
            f", {self._skipped} of its lines being longer than 1 MiB," if self._skipped else ""
        )
        found = cut(output.text.strip(), 500)
        return f"its output{skipped} has no field {self._agent.answer!r}: {found!r}"


def _text(agent: Agent, field: str, event: JsonValue) -> str | None:
    """The value at the agent's path for this field, as text; None if there is no value."""
    path = getattr(agent, field)
    value = find(path, event) if path is not None else None
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _whole(output: Captured) -> str:
    """The output; its head and tail if it is too long to be read."""
    return output.text if output.size > SEARCHED_BYTES else output.whole(SEARCHED_BYTES)


def _object(output: Captured) -> JsonValue:
    """The output, or else its last line, parsed as a JSON object."""
    text = output.whole(SEARCHED_BYTES).strip()
    whole = _parse_json(text)
    return whole if isinstance(whole, dict) else _parse_json(text.rpartition("\n")[2])


def _parse_json(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


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


def read_claude(event: dict[str, JsonValue]) -> Iterator[Activity]:
    """Yields the texts, tool calls, tool results and notices in an event of Claude Code."""
    kind = event.get("type")
    if kind in ("assistant", "user"):
        yield from _read_message(kind, event.get("message"))
    elif kind == "system" and event.get("subtype") == "api_retry":
        yield Notice("retry", _retry_text(event))
    elif kind == "rate_limit_event":
        yield from _read_rate_limit(event)


def _read_message(kind: JsonValue, message: JsonValue) -> Iterator[Activity]:
    blocks = message.get("content") if isinstance(message, dict) else None
    for block in blocks if isinstance(blocks, list) else []:
        if not isinstance(block, dict):
            continue
        if kind == "assistant" and block.get("type") == "text":
            yield AgentText(format_value(block.get("text")))
        elif kind == "assistant" and block.get("type") == "tool_use":
            name = str(block.get("name") or "tool")
            yield ToolStarted(_id(block.get("id")), name, format_input(block.get("input")))
        elif kind == "user" and block.get("type") == "tool_result":
            result = format_value(block.get("content"))
            yield ToolEnded(_id(block.get("tool_use_id")), result, block.get("is_error") is True)


def _id(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _retry_text(event: dict[str, JsonValue]) -> str:
    """Which retry it is, when it starts, and why.

    >>> _retry_text({"attempt": 1, "max_retries": 2, "retry_delay_ms": 539.9,
    ...              "error_status": 529, "error": "overloaded"})
    '1 of 2 in 0.5 s: overloaded (529)'
    """
    count = f"{event.get('attempt', '?')} of {event.get('max_retries', '?')}"
    delay = event.get("retry_delay_ms")
    wait = f" in {delay / 1000:.1f} s" if isinstance(delay, int | float) else ""
    status = event.get("error_status")
    why = f"{event.get('error') or 'unknown error'}" + (f" ({status})" if status else "")
    return f"{count}{wait}: {why}"


def _read_rate_limit(event: dict[str, JsonValue]) -> Iterator[Activity]:
    """The state of a rate limit, unless requests are allowed without a warning."""
    nested = event.get("rate_limit_info")
    info = nested if isinstance(nested, dict) else event
    status = info.get("status")
    if status == "allowed":
        return
    shown = {"status": status, "limit": info.get("rateLimitType"), "resets": info.get("resetsAt")}
    yield Notice("rate limit", format_input({k: v for k, v in shown.items() if v is not None}))


class CodexTools:
    """Tracks whether any tool call of one run worked; `home` is CODEX_HOME, where it is known."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        self._thread: str | None = None
        self._has_worked = False
        self._error: str | None = None

    def take(self, event: JsonValue) -> None:
        """Record the thread id or a completed tool call from a Codex event; ignore other events."""
        if isinstance(event, dict) and event.get("type") == "thread.started":
            self._thread = str(event.get("thread_id"))
        if not isinstance(event, dict) or event.get("type") != "item.completed":
            return
        item = event.get("item")
        if not isinstance(item, dict):
            return
        if item.get("type") == "command_execution":
            self._take_command(item)
        elif item.get("type") in ("file_change", "mcp_tool_call"):
            self._has_worked = self._has_worked or item.get("status") == "completed"

    def find_fault(self) -> str | None:
        """Return why no tool call worked, with the fix; None if one worked or none was made."""
        if self._has_worked:
            return None
        error = self._error or self._find_unreported()
        if error is None:
            return None
        return f"its sandbox started none of its commands ({error}); {_HINT}"

    def _find_unreported(self) -> str | None:
        if self._home is None or self._thread is None:
            return None
        return find_sandbox_error(self._home, self._thread)

    def _take_command(self, item: dict[str, JsonValue]) -> None:
        output = str(item.get("aggregated_output") or "").strip()
        if item.get("status") == "failed" and output.startswith(_SANDBOX):
            self._error = output.splitlines()[0][:300]
        else:
            self._has_worked = True
