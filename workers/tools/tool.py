"""Runs a tool step: finds the tool by its name and calls it; the built-in tools."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from app.core.outcomes import Outcome, Thread
from app.core.routing import MAX_WIDTH
from app.truncate import cut
from leadhand.models.tool_schemas import owner_of
from leadhand.models.verdicts import Reason, ReasonCode
from workers.agents.output_parser import TEXT_LIMIT
from workers.functions import call
from workers.inline_calls import CallResult
from workers.processes.exit_outcome import (
    add_process_facts,
    failed_outcome,
    failure,
    mark_retryable,
)
from workers.registry.tool_entry import DeclaredTool, McpServer
from workers.task import BodyTask, ToolInputs
from workers.tools.declared import outcome_of, use_declared, use_served, why_declined

#: How the count names a child session's status; any other status counts as failed.
_COUNTS = {"completed": "succeeded", "stopped": "stopped", "aborted": "stopped",
           "exited": "stopped"}  # fmt: skip
Tool = Callable[[dict[str, JsonValue]], JsonValue]


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


def use_function(task: BodyTask, inputs: ToolInputs, cancel: threading.Event) -> Outcome:
    """Call a tool's Python function; it fails if it raises or returns ``{"success": false}``."""
    called = call(
        task,
        inputs.tool,
        inputs.arguments,
        timeout_s=task.timeout_s,
        cancel=cancel,
        quick=inputs.quick,
        tools=task.shelf.folders,
    )
    return function_outcome(inputs.tool, called, timeout_s=task.timeout_s)


def use_inline(task: BodyTask, inputs: ToolInputs) -> Outcome | None:
    """Call a function that the operator has made inline, in this process; None for any other."""
    function = task.shelf.inline.find(inputs.tool) if task.inline is not None else None
    if function is None or task.inline is None:
        return None
    timeout_s = min(task.timeout_s, function.timeout_s)
    called = task.inline.call(task.shelf.inline, function, inputs.arguments, timeout_s=timeout_s)
    return None if called is None else function_outcome(inputs.tool, called, timeout_s=timeout_s)


def function_outcome(name: str, called: CallResult, *, timeout_s: float) -> Outcome:
    """Turns the result of a tool's call into an outcome."""
    who = f"tool {name!r}"
    bad = failure(called.result, who=who, timeout_s=timeout_s) or _call_failure(who, called)
    if bad is not None:
        is_final = called.refused is not None or called.missing is not None
        return bad if is_final else mark_retryable(bad, called.result)
    return add_process_facts(
        outcome_of(called.value, printed=called.result.stdout.text.strip()), called.result
    )


def _call_failure(who: str, called: CallResult) -> Outcome | None:
    value = called.value
    if called.missing is not None:
        text = f"{who} could not start: {called.missing}"
    elif called.refused is not None:
        text = f"{who}: {called.refused}"
    elif called.raised is not None:
        text = f"{who} raised: {_exception_first(called.raised)}"
    elif called.unfinished:
        text = f"{who} ended its process before it returned"
    elif isinstance(value, dict) and value.get("success") is False:
        text = f"{who} reported a failure: {why_declined(value)}"
        outcome = failed_outcome(ReasonCode.FAILED_STEP, text, result=called.result)
        return outcome.model_copy(update={"value": value})
    else:
        return None
    bad = failed_outcome(ReasonCode.FAILED_STEP, text, result=called.result)
    return bad.model_copy(update={"errors": called.errors, "members": called.members})


def _exception_first(traceback: str) -> str:
    r"""The exception, then its traceback: readers with little room quote the first line.

    >>> print(_exception_first("Traceback:\n  File \"a.py\"\n    f()\nValueError: no\nsuch"))
    ValueError: no
    Traceback:
      File "a.py"
        f()
    ValueError: no
    such
    """
    lines = traceback.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith("  File ")]
    rest = lines[frames[-1] :] if frames else []
    first = next((line for line in rest if line[:1].strip()), None)
    return traceback if first is None else f"{first}\n{traceback}"


def use(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Run the step's tool on its arguments and return the outcome."""
    given = ToolInputs.model_validate(task.inputs)
    outcome = _call(task, given, cancel)
    return outcome if given.expect is None else expect_success(given.tool, outcome)


def expect_success(tool: str, outcome: Outcome) -> Outcome:
    """Marks the outcome as failed unless its result is an object with `success` true.

    >>> expect_success("a", Outcome(word="succeeded", value={"success": True})).word
    'succeeded'
    >>> expect_success("a", Outcome(word="succeeded", value=[])).reason.text
    "tool 'a' did not report success: its result is not an object with `success`"
    """
    value = outcome.value
    if outcome.word != "succeeded" or (isinstance(value, dict) and value.get("success") is True):
        return outcome
    why = "its result is not an object with `success`"
    if isinstance(value, dict) and "success" in value:
        message = value.get("error") or value.get("message") or "`success` is not true"
        why = cut(str(message), TEXT_LIMIT)
    reason = Reason(
        code=ReasonCode.FAILED_STEP, text=f"tool {tool!r} did not report success: {why}"
    )
    return outcome.model_copy(update={"word": "failed", "reason": reason, "retryable": True})


def _call(task: BodyTask, given: ToolInputs, cancel: threading.Event) -> Outcome:
    step = STEPS.get(given.tool)
    if step is not None:
        return step(given.arguments)
    tool = TOOLS.get(given.tool)
    if tool is not None:
        return outcome_of(tool(given.arguments))
    inline = use_inline(task, given)
    if inline is not None:
        return inline
    entry = task.shelf.book.entry(given.tool)
    if isinstance(entry, DeclaredTool):
        return use_declared(task, given, entry, cancel)
    server = owner_of(given.tool)
    served = task.shelf.book.entry(server) if server != given.tool else None
    if isinstance(served, McpServer):
        return use_served(task, given, server, served, cancel)
    found = task.shelf.tool(given.tool)
    if found is None or found.why_not is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, task.shelf.unusable_text(given.tool))
    return use_function(task, given, cancel)


def echo(arguments: dict[str, JsonValue]) -> JsonValue:
    """Returns the arguments unchanged: a built-in tool."""
    return arguments


def noop(arguments: dict[str, JsonValue]) -> JsonValue:
    """Does nothing: a built-in tool."""
    del arguments
    return None


TOOLS: Mapping[str, Tool] = {"echo": echo, "noop": noop}
