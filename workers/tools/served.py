"""Runs a tool of an MCP server."""

from __future__ import annotations

import json
import threading
import time

from pydantic import JsonValue

from app.domain.outcomes import Outcome
from app.truncate import cut
from leadhand.graphs.retry_errors import CONNECTION
from leadhand.models.reasons import ReasonCode
from leadhand.models.tool_values import convert
from workers.agents.output_parser import TEXT_LIMIT
from workers.processes.exit_outcome import failed_outcome
from workers.registry.declared.entry import Form, McpServer
from workers.registry.declared.served import ServedTool, ServerState
from workers.task.inputs import ToolInputs
from workers.task.task import BodyTask
from workers.tool_servers.calls import Called, call
from workers.tools.outcomes import declined, outcome_of, refuse_repeat

#: How often a call is sent again to a server that ended during it.
_AGAIN = 2


def use_served(
    task: BodyTask, inputs: ToolInputs, server: str, entry: McpServer, cancel: threading.Event
) -> Outcome:
    """Check the arguments and call the tool of an MCP server; `isError` is a failure."""
    who, name = f"tool {inputs.tool!r}", inputs.tool.partition(".")[2]
    state = task.shelf.served.state(server)
    tool = next((one for one in state.tools if one.name == name), None)
    if tool is None and state.tools:
        return failed_outcome(ReasonCode.FAILED_STEP, _no_tool(server, name, state))
    if tool is not None and tool.why_not is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who}: {tool.why_not}")
    arguments, wrong = _converted(tool, inputs.arguments)
    if wrong is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who}: {wrong}")
    may_repeat = entry.may_repeat(name) or (tool is not None and tool.repeats)
    lost = refuse_repeat(task, who, may_repeat=may_repeat)
    if lost is not None:
        return lost
    timeout_s = min(task.timeout_s, entry.timeout_s or task.timeout_s)
    called = _call(task, server, name, arguments, timeout_s, cancel, may_repeat=may_repeat)
    outcome = _outcome(who, server, called, timeout_s, entry.form_of(name))
    return declined(outcome, who)


def _converted(
    tool: ServedTool | None, given: dict[str, JsonValue]
) -> tuple[dict[str, JsonValue], str | None]:
    """The arguments as the tool's schema has them; the server fills in its own defaults."""
    if tool is None or not tool.input_schema.get("properties"):
        return given, None
    found, wrong = convert(tool.input_schema, given)
    return {name: value for name, value in found.items() if name in given}, wrong


def _call(
    task: BodyTask,
    server: str,
    name: str,
    arguments: dict[str, JsonValue],
    timeout_s: float,
    cancel: threading.Event,
    *,
    may_repeat: bool,
) -> Called:
    """Call the tool; again if its server ended and a second call changes nothing more."""
    deadline = time.monotonic() + timeout_s
    for left in range(_AGAIN if may_repeat else 0, -1, -1):
        called = call(
            lambda: task.shelf.served.state(server),
            name,
            arguments,
            timeout_s=max(0.0, deadline - time.monotonic()),
            cancel=cancel,
            until=task.until,
        )
        if called.end != "closed" or left == 0:
            return called
    raise AssertionError


def _outcome(who: str, server: str, called: Called, timeout_s: float, form: Form) -> Outcome:
    match called.end:
        case "cancelled":
            return failed_outcome(ReasonCode.CANCELLED, f"{who} was cancelled")
        case "timed_out":
            text = f"{who} timed out after {timeout_s:g} seconds"
            return failed_outcome(ReasonCode.TIMEOUT, text, retryable=True)
        case "away":
            return _unreached(f"{who} could not be called: server {server!r} is away: {called.why}")
        case "closed":
            return _unreached(
                f"{who} failed: server {server!r} ended during the call: {called.why}"
            )
        case "refused":
            text = f"{who} failed: {called.why}"
            return failed_outcome(ReasonCode.FAILED_STEP, text, retryable=True)
        case None:
            return _of_result(who, called, form)


def _of_result(who: str, called: Called, form: Form) -> Outcome:
    """The outcome of a call that the server answered."""
    if called.is_error:
        text = f"{who} reported a failure: {cut(called.text, TEXT_LIMIT) or 'it gives no reason'}"
        failed = failed_outcome(ReasonCode.FAILED_STEP, text, retryable=True)
        value = called.value if called.has_value else called.text
        return failed.model_copy(update={"value": value})
    if called.has_value:
        return outcome_of(called.value)
    return _of_json(who, called.text) if form == "json" else outcome_of(called.text)


def _of_json(who: str, text: str) -> Outcome:
    """The value of a text that is JSON; none for an empty text."""
    try:
        return outcome_of(json.loads(text) if text else None)
    except (ValueError, RecursionError) as error:
        why = f"{who} returned no JSON ({error}): {cut(text, 500)}"
        return failed_outcome(ReasonCode.INVALID_ANSWER, why, retryable=True)


def _unreached(text: str) -> Outcome:
    failed = failed_outcome(ReasonCode.FAILED_STEP, text, retryable=True)
    return failed.model_copy(update={"errors": CONNECTION})


def _no_tool(server: str, name: str, state: ServerState) -> str:
    known = ", ".join(f"{server}.{tool.name}" for tool in state.tools)
    return f"ToolNotFound: server {server!r} has no tool {name!r}; it has: {known}"
