"""Tools by name, from arguments to a JSON value: our own small ones, and functions of users."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from app.outcomes import Outcome
from app.reasons import ReasonCode
from app.views import ToolHere
from workers.body_task import BodyTask
from workers.endings import failed
from workers.inputs import ToolInputs
from workers.tools import flow_tools
from workers.tools.functions import told, use_function

Tool = Callable[[dict[str, JsonValue]], JsonValue]


def use(task: BodyTask, cancel: threading.Event) -> Outcome:
    """What the named tool makes of its arguments."""
    given = ToolInputs.model_validate(task.inputs)
    step = flow_tools.STEPS.get(given.tool)
    if step is not None:
        return step(given.arguments)
    tool = TOOLS.get(given.tool)
    if tool is not None:
        return told(tool(given.arguments))
    found = task.shelf.tool(given.tool)
    if found is None or found.why_not is not None:
        return failed(ReasonCode.FAILED_STEP, _not_found(task, given.tool, found))
    return use_function(task, given, cancel)


def _not_found(task: BodyTask, name: str, found: ToolHere | None) -> str:
    if found is not None:
        return f"ToolNotFound: tool {name!r} is not known here: {found.why_not}"
    known = ", ".join(sorted({*TOOLS, *(tool.name for tool in task.shelf.tools())}))
    return f"ToolNotFound: tool {name!r} is not known here; known are {known}"


def echo(arguments: dict[str, JsonValue]) -> JsonValue:
    """Its arguments, unchanged."""
    return arguments


def noop(arguments: dict[str, JsonValue]) -> JsonValue:
    """Nothing, whatever it is given."""
    del arguments
    return None


TOOLS: Mapping[str, Tool] = {"echo": echo, "noop": noop}
