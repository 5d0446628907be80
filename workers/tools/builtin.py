"""Built-in tools of compiled flows and graphs, such as resetting a conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from app.domain.outcomes import Outcome, Thread
from app.domain.routing import MAX_WIDTH
from app.truncate import cut
from leadhand.models.reasons import ReasonCode
from workers.agents.output_parser import TEXT_LIMIT
from workers.processes.exit_outcome import failed_outcome

#: How the count names a child session's status; any other status counts as failed.
_COUNTS = {"completed": "succeeded", "stopped": "stopped", "aborted": "stopped",
           "exited": "stopped"}  # fmt: skip


def forget(arguments: dict[str, JsonValue]) -> Outcome:
    """Built-in tool: resets a conversation, so that its next turn has no history."""
    thread = Thread(conversation=str(arguments["conversation"]), id=None)
    return Outcome(word="succeeded", text="forgotten", thread=thread)


def require(arguments: dict[str, JsonValue]) -> Outcome:
    """Built-in tool: succeeds if a check accepted, otherwise fails with the check's feedback."""
    text = cut(str(arguments.get("text") or ""), TEXT_LIMIT)
    if arguments.get("verdict") == "accept":
        return Outcome(word="succeeded", text=text)
    why = f"the check did not accept: {text}" if text else "the check did not accept"
    return failed_outcome(ReasonCode.FAILED_STEP, why).model_copy(update={"text": text})


def tally(arguments: dict[str, JsonValue]) -> Outcome:
    """Built-in tool: counts how the subflows of a step ended; never fails.

    Each subflow that did not succeed gets a line of its own.

    >>> kq = {"session": "1a2b3c4d", "name": "kq", "status": "aborted", "why": "enough"}
    >>> print(tally({"ended": [{"status": "completed"}, kq, None]}).text)
    1 succeeded, 1 failed, 1 stopped
    kq (session 1a2b3c4d) is aborted: enough
    """
    ended = arguments["ended"]
    assert isinstance(ended, list)
    words = [_word(one) for one in ended]
    counts: dict[str, JsonValue] = {w: words.count(w) for w in ("succeeded", "failed", "stopped")}
    text = ", ".join(f"{count} {word}" for word, count in counts.items())
    lines = [
        text,
        *(_line_of(o) for o, w in zip(ended, words, strict=True) if w != "succeeded" and o),
    ]
    whole = cut("\n".join(lines), TEXT_LIMIT)
    return Outcome(word="succeeded", text=whole, value=counts | {"text": text})


def _line_of(one: JsonValue) -> str:
    """One line about a child session that did not succeed: its flow, status and reason."""
    assert isinstance(one, dict)
    why = f": {one['why']}" if one.get("why") else ""
    name = one.get("name") or "a flow"
    return f"{name} (session {one.get('session')}) is {one.get('status')}{why}"


def _word(one: JsonValue) -> str:
    status = one.get("status") if isinstance(one, dict) else None
    return _COUNTS.get(str(status), "failed")


def items(arguments: dict[str, JsonValue]) -> Outcome:
    """Built-in tool: returns the list that a for_each iterates over; fails if it is no valid list.

    >>> items({"items": ["a"]}).value
    ['a']
    """
    found = arguments.get("items")
    if isinstance(found, list) and len(found) <= MAX_WIDTH:
        return Outcome(word="succeeded", value=found, text=f"{len(found)} items")
    what = f"a list of {len(found)}" if isinstance(found, list) else cut(json.dumps(found), 200)
    why = f"for_each needs a list of at most {MAX_WIDTH} items; it is {what}"
    return failed_outcome(ReasonCode.FAILED_STEP, why)


STEPS: Mapping[str, Callable[[dict[str, JsonValue]], Outcome]] = {
    "flow.forget": forget,
    "flow.require": require,
    "flow.tally": tally,
    "graph.items": items,
}
