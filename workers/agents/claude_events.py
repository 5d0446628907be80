"""Reads the activity from the events of Claude Code (`--output-format stream-json`)."""

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
