"""What the steps of a graph give, by the rules of docs/graphs.md: the reference for the engine.

It imports nothing of Leadhand, and knows neither time nor workers. Each step is listed after those
in its `needs`. A reference is {"ref": [NAME, KEY, ...]}, maybe with a "default"; a text with
references is {"text": [PART, ...]}. `tool(name, number, attempt, arguments)` says with which error
an attempt fails ("" for none) and what it returns.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any


class Failed(dict[str, Any]):
    """The value of a call that failed: {"error": TEXT}."""


class Skipped(Exception):
    """A reference without a default names a step that was skipped."""


def interpret(steps: Any, inputs: Any, tool: Any, skipped: Any) -> tuple[Any, Any]:
    """The value of each step (None: skipped), and of the critical ones that fail, which end all."""
    values, fatal = {"inputs": inputs}, dict[str, Any]()
    for step in steps:
        if values.keys() >= step["needs"]:  # else it comes after a critical step that failed
            calls = None if step["name"] in skipped else run(step, values, tool)
            value = calls if calls is None or "for_each" in step else (calls or [None])[0]
            fails = any(isinstance(one, Failed) for one in calls or ())
            (fatal if fails and step["critical"] else values)[step["name"]] = value
    return values, fatal


def run(step: Any, values: Any, tool: Any) -> list[Any]:
    """The value of each call: one for each item, or one; none if the step is skipped."""
    with suppress(Skipped):
        if joins(step, values) and meets(step["when"], values):
            items = enumerate(fill(step.get("for_each", [None]), values), 1)
            return [call(step, {**values, "item": one, "index": n}, tool) for n, one in items]
    return []


def call(step: Any, scope: Any, tool: Any) -> Any:
    """The value of a call after its retries; None if it is skipped."""
    with suppress(Skipped):
        if meets(step["when_of_item"], scope):
            arguments, error, value = fill(step["arguments"], scope), "", None
            for attempt in range(step["retries"] + 1):
                error, value = tool(step["name"], scope["index"], attempt, arguments)
                if error not in step["retry_on"]:
                    break
            return Failed(error=error) if error else value
    return None


def joins(step: Any, values: Any) -> bool:
    """Whether all or any of the steps that it waits for succeeded; a list without items did."""
    found = [values[name] for name in step["needs"]]
    calls = [one if isinstance(one, list) else [one] for one in found]
    good = [[type(one) is dict for one in each] for each in calls]  # neither None nor Failed
    is_any = any(not each or any(each) for each in good)
    return {"ended": True, "always": True, "all": all(map(all, good)), "any": is_any}[step["join"]]


def meets(when: Any, scope: Any) -> bool:
    """Whether a condition is true, or there is none."""
    return when is None or bool(fill(when["value"], scope)) != when["not"]


def fill(value: Any, scope: Any) -> Any:
    """The value with what its references lead to."""
    if isinstance(value, list):
        return [fill(one, scope) for one in value]
    if not isinstance(value, dict):
        return value
    if "ref" in value:
        return look_up(*value["ref"], scope=scope, default=value.get("default"))
    if "text" in value:
        parts = fill(value["text"], scope)
        return "".join(one if isinstance(one, str) else json.dumps(one) for one in parts)
    return {key: fill(one, scope) for key, one in value.items()}


def look_up(name: str, *keys: Any, scope: Any, default: Any) -> Any:
    """What a reference leads to; its default stands for what is missing, skipped or failed."""
    value = scope[name]
    if value is None and name != "item" and default is None:
        raise Skipped
    if isinstance(value, Failed) and keys != ("error",) and default is not None:
        return default
    with suppress(LookupError, TypeError):  # there is no such part
        for key in keys:
            value = value[key]
        return default if value is None else value
    return default
