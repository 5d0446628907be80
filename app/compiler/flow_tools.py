"""Compiles the tool steps of flows: a call, or one for each item of a list (pure)."""

from __future__ import annotations

import json

from pydantic import JsonValue

from app.compiler.flow_nodes import quick_step
from app.compiler.templates import Texts
from app.compiler.tool_nodes import tool_node
from app.domain.graphs import ITEMS
from app.domain.program import Step
from app.errors import InvalidDocument
from leadhand.flows.references import condition_of, find_references
from leadhand.flows.structure import INPUT_REFERENCE
from leadhand.flows.tool_step import ToolStep
from leadhand.models.tool_names import BUILT_IN_TOOLS


def tool_call(step: ToolStep, id_: str, texts: Texts) -> Step:
    """Builds the node that calls the tool of a flow's step; the list of a forEach is not set."""
    texts = texts._replace(has_item=step.for_each is not None)
    called = tool_node(step.tool)
    inputs = {**called.inputs, "arguments": texts.translate_value(step.arguments)}
    if step.tool not in BUILT_IN_TOOLS and step.quick:
        inputs["quick"] = True
    if step.when is not None and (step.for_each is None or _asks_each_item(step)):
        inputs |= _condition(step.when, texts)
    return Step(
        id=id_,
        action=called.action,
        timeout_s=called.timeout_of(
            step.timeout_seconds, is_given="timeout_seconds" in step.model_fields_set
        ),
        inputs=inputs,
        folder=called.folder,
        limits=called.limits,
        quick=step.quick,
        at_once=step.at_once,
    )


def list_maker(step: ToolStep, id_: str, texts: Texts) -> Step | None:
    """Builds the node that computes the list for a step's forEach; None if it has no forEach.

    It is skipped with its step, unless the condition is one of each item.
    """
    if step.for_each is None:
        return None
    items = _items(step.for_each, texts)
    node = quick_step(id_, ITEMS, {"items": items})
    if step.when is None or _asks_each_item(step):
        return node
    return node.model_copy(update={"inputs": {**node.inputs, **_condition(step.when, texts)}})


def _items(for_each: str | list[JsonValue], texts: Texts) -> JsonValue:
    if isinstance(for_each, list):
        return texts.translate_value(for_each)
    named = INPUT_REFERENCE.fullmatch(for_each)
    if named is None:
        return texts.list_value(for_each)
    written = texts.inputs[named[1]]
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        hint = 'a forEach needs a list; give one as JSON, such as ["a", "b"]'
        raise InvalidDocument(f"inputs.{named[1]}", written, hint)
    return Texts({}).translate_value(found)


def _asks_each_item(step: ToolStep) -> bool:
    """Whether the condition is one of each item, not of the whole list."""
    text = condition_of(str(step.when)).text
    return next(find_references(text, (), has_item=False), None) is None


def _condition(when: str, texts: Texts) -> dict[str, JsonValue]:
    return {"when": texts.condition(when), "skipped": f"its condition was not met: {when}"}
