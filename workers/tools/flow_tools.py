"""What flows do between their steps: forget a conversation, require a check, count subflows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import JsonValue

from app.outcomes import Outcome, Thread
from app.reasons import ReasonCode
from app.texts import cut
from workers.agents.hearing import TEXT_LIMIT
from workers.endings import failed

#: How a child session's end counts; any other has failed.
_COUNTS = {"completed": "succeeded", "stopped": "stopped", "aborted": "stopped",
           "exited": "stopped"}  # fmt: skip


def forget(arguments: dict[str, JsonValue]) -> Outcome:
    """The next agent that speaks in the conversation begins a new one."""
    thread = Thread(conversation=str(arguments["conversation"]), id=None)
    return Outcome(word="succeeded", text="forgotten", thread=thread)


def require(arguments: dict[str, JsonValue]) -> Outcome:
    """Succeeds where a check has accepted, and fails with its feedback where it has not."""
    text = cut(str(arguments.get("text") or ""), TEXT_LIMIT)
    if arguments.get("verdict") == "accept":
        return Outcome(word="succeeded", text=text)
    why = f"the check did not accept: {text}" if text else "the check did not accept"
    return failed(ReasonCode.FAILED_STEP, why).model_copy(update={"text": text})


def tally(arguments: dict[str, JsonValue]) -> Outcome:
    """How the subflows ended, which is no failure of the flow that began them.

    Who has not succeeded is named in a line of its own.

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
    lines = [text, *(_told(o) for o, w in zip(ended, words, strict=True) if w != "succeeded" and o)]
    whole = cut("\n".join(lines), TEXT_LIMIT)
    return Outcome(word="succeeded", text=whole, value=counts | {"text": text})


def _told(one: JsonValue) -> str:
    """A child session that has not succeeded: which flow, and why."""
    assert isinstance(one, dict)
    why = f": {one['why']}" if one.get("why") else ""
    name = one.get("name") or "a flow"
    return f"{name} (session {one.get('session')}) is {one.get('status')}{why}"


def _word(one: JsonValue) -> str:
    status = one.get("status") if isinstance(one, dict) else None
    return _COUNTS.get(str(status), "failed")


STEPS: Mapping[str, Callable[[dict[str, JsonValue]], Outcome]] = {
    "flow.forget": forget,
    "flow.require": require,
    "flow.tally": tally,
}
