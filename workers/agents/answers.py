"""Reads an agent's answer out of what its program wrote."""

from __future__ import annotations

import json

from app.texts import cut
from workers.agents.errors import AnswerUnreadable
from workers.capture import Captured

#: Bytes of output that are searched for the answer, from the end.
SEARCHED_BYTES = 16 * 1024 * 1024
#: Characters of one text that a session keeps.
TEXT_LIMIT = 64_000


def read_answer(how: str, output: Captured) -> str:
    """The answer, cut to what a session keeps. Raises AnswerUnreadable."""
    if how == "text":
        return cut(output.text.strip(), TEXT_LIMIT)
    whole = output.whole(SEARCHED_BYTES)
    found = _codex(whole) if how == "codex" else _field(whole, how.partition(":")[2])
    return cut(found.strip(), TEXT_LIMIT)


def _field(whole: str, path: str) -> str:
    """A field of the JSON object that the output is, or that its last line is."""
    value = _object(whole)
    if isinstance(value, dict) and value.get("is_error") is True:
        raise AnswerUnreadable(f"it reports an error: {cut(str(value.get('result', '')), 2_000)}")
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            raise AnswerUnreadable(f"its JSON has no field {path!r}")
        value = value[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _object(whole: str) -> object:
    text = whole.strip()
    for candidate in (text, text.rpartition("\n")[2]):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    raise AnswerUnreadable(f"its output is not JSON: {cut(text, 500)!r}")


def _codex(whole: str) -> str:
    """The text of the last agent message among JSON lines; other lines are passed over."""
    failure = ""
    for line in reversed(whole.splitlines()):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        item = event.get("item") if isinstance(event, dict) else None
        if isinstance(item, dict) and item.get("type") == "agent_message":
            return str(item.get("text", ""))
        if isinstance(event, dict) and event.get("type") in {"turn.failed", "error"}:
            failure = failure or f"it reports an error: {cut(line, 2_000)}"
    raise AnswerUnreadable(failure or "its output holds no agent_message")
