"""Runs a tool step: finds the tool by name, built in or a user's function, and calls it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from app.domain.outcomes import Outcome
from app.domain.reasons import ReasonCode
from leadhand.models.views import ToolHere
from workers.processes.exit_outcome import failed_outcome
from workers.task.inputs import ToolInputs
from workers.task.task import BodyTask
from workers.tools import builtin
from workers.tools.function import outcome_of, use_function

Tool = Callable[[dict[str, JsonValue]], JsonValue]


def use(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Run the step's tool on its arguments and return the outcome."""
    given = ToolInputs.model_validate(task.inputs)
    step = builtin.STEPS.get(given.tool)
    if step is not None:
        return step(given.arguments)
    tool = TOOLS.get(given.tool)
    if tool is not None:
        return outcome_of(tool(given.arguments))
    found = task.shelf.tool(given.tool)
    if found is None or found.why_not is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, _not_found_text(task, given.tool, found))
    return use_function(task, given, cancel)


def _not_found_text(task: BodyTask, name: str, found: ToolHere | None) -> str:
    if found is not None:
        return f"ToolNotFound: tool {name!r} is not known here: {found.why_not}"
    known = ", ".join(sorted({*TOOLS, *(tool.name for tool in task.shelf.tools())}))
    return f"ToolNotFound: tool {name!r} is not known here; known are {known}"


def echo(arguments: dict[str, JsonValue]) -> JsonValue:
    """Return the arguments unchanged."""
    return arguments


def noop(arguments: dict[str, JsonValue]) -> JsonValue:
    """Return None."""
    del arguments
    return None


TOOLS: Mapping[str, Tool] = {"echo": echo, "noop": noop}
