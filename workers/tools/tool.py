"""Runs a tool step: finds the tool by its name and calls it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from app.domain.outcomes import Outcome
from app.truncate import cut
from leadhand.models.reasons import Reason, ReasonCode
from leadhand.models.tool_names import owner_of
from workers.agents.output_parser import TEXT_LIMIT
from workers.processes.exit_outcome import failed_outcome
from workers.registry.declared.entry import DeclaredTool, McpServer
from workers.task.inputs import ToolInputs
from workers.task.task import BodyTask
from workers.tools import builtin
from workers.tools.declared import use_declared
from workers.tools.function import use_function, use_inline
from workers.tools.outcomes import outcome_of
from workers.tools.served import use_served

Tool = Callable[[dict[str, JsonValue]], JsonValue]


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
    step = builtin.STEPS.get(given.tool)
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
