"""Tools that are Python functions of users, each called outside of the worker's own process."""

from __future__ import annotations

import json
import threading

from pydantic import JsonValue

from app.outcomes import Outcome
from app.reasons import ReasonCode
from app.texts import cut
from workers.agents.hearing import TEXT_LIMIT
from workers.body_task import BodyTask
from workers.callables import Called, call
from workers.endings import failed, failure, stamped
from workers.inputs import ToolInputs


def told(value: JsonValue, *, printed: str = "") -> Outcome:
    """What a tool returned, as the next reader is shown it too."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printed if value is None else text
    return Outcome(word="succeeded", value=value, text=cut(text, TEXT_LIMIT))


def use_function(task: BodyTask, given: ToolInputs, cancel: threading.Event) -> Outcome:
    """What the function returned; where it raised or says so itself, it has failed."""
    called = call(
        task,
        given.tool,
        given.arguments,
        timeout_s=task.timeout_s,
        cancel=cancel,
        quick=given.quick,
        tools=task.shelf.folders,
    )
    who = f"tool {given.tool!r}"
    bad = failure(called.result, who=who, timeout_s=task.timeout_s) or _failed(who, called)
    if bad is not None:
        return bad
    return stamped(told(called.value, printed=called.result.stdout.text.strip()), called.result)


def _failed(who: str, called: Called) -> Outcome | None:
    value = called.value
    if called.missing is not None:
        text = f"{who} could not start: {called.missing}"
    elif called.refused is not None:
        text = f"{who}: {called.refused}"
    elif called.raised is not None:
        text = f"{who} raised: {called.raised}"
    elif called.unfinished:
        text = f"{who} ended its process before it returned"
    elif isinstance(value, dict) and value.get("success") is False:
        text = f"{who} says that it failed: {_why(value)}"
        outcome = failed(ReasonCode.FAILED_STEP, text, result=called.result)
        return outcome.model_copy(update={"value": value})
    else:
        return None
    return failed(ReasonCode.FAILED_STEP, text, result=called.result)


def _why(value: dict[str, JsonValue]) -> str:
    """The dict's own word for it, or all of it."""
    said = value.get("error") or value.get("message")
    return cut(str(said) if said else json.dumps(value, ensure_ascii=False), TEXT_LIMIT)
