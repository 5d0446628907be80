"""Tools by name: small functions that run in the worker itself, from arguments to a JSON value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from app.outcomes import Outcome
from app.reasons import ReasonCode
from app.texts import cut
from workers.agents.hearing import TEXT_LIMIT
from workers.body_task import BodyTask
from workers.endings import failed
from workers.inputs import ToolInputs
from workers.tools import flow_tools

Tool = Callable[[dict[str, JsonValue]], JsonValue]


def use(task: BodyTask) -> Outcome:
    """What the named tool makes of its arguments."""
    given = ToolInputs.model_validate(task.inputs)
    step = flow_tools.STEPS.get(given.tool)
    if step is not None:
        return step(given.arguments)
    tool = TOOLS.get(given.tool)
    if tool is None:
        known = ", ".join(sorted(TOOLS))
        text = f"ToolNotFound: tool {given.tool!r} is not known here; known are {known}"
        return failed(ReasonCode.FAILED_STEP, text)
    value = tool(given.arguments)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "" if value is None else text
    return Outcome(word="succeeded", value=value, text=cut(text, TEXT_LIMIT))


def echo(arguments: dict[str, JsonValue]) -> JsonValue:
    """Its arguments, unchanged."""
    return arguments


def noop(arguments: dict[str, JsonValue]) -> JsonValue:
    """Nothing, whatever it is given."""
    del arguments
    return None


TOOLS: Mapping[str, Tool] = {"echo": echo, "noop": noop}
