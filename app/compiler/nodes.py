"""Nodes of programs: their ids, and the parts that flows and graphs have in common (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.core.addresses import lock_name
from app.core.program import Action, Step
from app.core.references import RESERVED, literal
from app.errors import InvalidDocument
from leadhand.flows.documents import FlowDocument, HumanStep
from leadhand.models.forms import FREE_TEXT
from leadhand.models.tool_schemas import AGENT, BUILT_IN_TOOLS, FLOW, shape_of

#: Timeout of the built-in quick steps.
QUICK_TIMEOUT_S = 60.0
#: Seconds of an agent's step, and of one whose child session has limits of its own.
_AGENT_S, CHILD_S = 3600.0, 30 * 24 * 3600.0
#: Names that have a meaning of their own in programs.
_TAKEN = RESERVED | {"do", "judge"}
_LONGEST = 64


def required_inputs(document: FlowDocument) -> dict[str, str]:
    """Returns the text of each input of a flow. Raises InvalidDocument if one has no default."""
    given = {}
    for name, text in document.inputs.items():
        if text is None:
            raise InvalidDocument(
                f"inputs.{name}", None, "this input has no default; give it a value"
            )
        given[name] = text
    return given


def quick_step(id_: str, tool: str, arguments: Mapping[str, JsonValue]) -> Step:
    """Builds a tool step that may run at once in the worker that released it, without a message."""
    inputs: dict[str, JsonValue] = {"tool": tool, "arguments": dict(arguments)}
    return Step(id=id_, action=Action.TOOL, quick=True, timeout_s=QUICK_TIMEOUT_S, inputs=inputs)


def rules_of(step: HumanStep) -> dict[str, JsonValue]:
    """Returns the answer rules of a human step as JSON in `rules`; empty if any text is valid."""
    rules = step.rules.model_dump_json(exclude_unset=True, exclude_none=True)
    return {} if step.rules == FREE_TEXT else {"rules": rules}


def limits_of(agent: str | None, model: str | None) -> tuple[str, ...]:
    """Returns the keys of the limits that a step counts toward: its agent's and its model's."""
    named = (("agent", agent), ("model", model))
    return tuple(lock_name(f"{kind}:{name}") for kind, name in named if name)


def optional_literals(**texts: str | None) -> dict[str, JsonValue]:
    """Returns the texts that are not None, escaped so that none is parsed as a reference."""
    return {name: literal(text) for name, text in texts.items() if text is not None}


class ToolNode(NamedTuple):
    """The fields of a step that calls a tool."""

    action: Action
    inputs: dict[str, JsonValue]
    limits: tuple[str, ...] = ()
    #: Whether it may work in the folder.
    folder: bool = True
    #: Its timeout, if the document gives none.
    timeout_s: float | None = None

    def timeout_of(self, written_s: float, *, is_given: bool) -> float:
        """Returns the document's timeout if it is given, else the default of this kind of tool."""
        return written_s if is_given or self.timeout_s is None else self.timeout_s


def tool_node(tool: str) -> ToolNode:
    """Returns the action and inputs that a step needs to call this tool.

    >>> tool_node("agent:claude").inputs
    {'doer': {'agent': 'claude'}}
    """
    shape = shape_of(tool)
    if shape == "agent":
        name = tool.removeprefix(AGENT)
        doer: dict[str, JsonValue] = {"doer": {"agent": literal(name)}}
        return ToolNode(Action.AGENT, doer, (f"agent:{name}",), timeout_s=_AGENT_S)
    if shape == "flow":
        flow: dict[str, JsonValue] = {"flow": literal(tool.removeprefix(FLOW))}
        return ToolNode(Action.CHILD, flow, folder=False, timeout_s=CHILD_S)
    return ToolNode(Action.TOOL, {"tool": literal(tool)}, folder=tool not in BUILT_IN_TOOLS)


def node_id(label: str | None, kind: str, index: int, *, prefix: str = "") -> str:
    """Makes the id of a node from its label, or from its kind and number if that is not usable.

    >>> node_id("Write the plan", "llm", 1), node_id(None, "llm", 3), node_id(None, "startLoop", 1)
    ('Write-the-plan', 'llm3', 'loop1')
    >>> node_id("do", "llm", 2), node_id("42", "llm", 2)
    ('llm2', 'llm2')
    >>> node_id(None, "llm", 1, prefix="if2-then-")
    'if2-then-llm1'
    """
    word = "loop" if kind == "startLoop" else kind
    own = re.sub(r"[^A-Za-z0-9_-]+", "-", label or "").strip("-")[:40]
    if re.match(r"[A-Za-z]", own) and own not in _TAKEN:
        return own
    return f"{prefix}{word}{index}"[-_LONGEST:].lstrip("-0123456789")


def conversation(agent: str, type_: str, identifier: str) -> str:
    """Returns the key of a conversation, made of its agent, agentType and identifier.

    >>> conversation("claude", "claude", "main"), conversation("claude", "planner", "main")
    ('claude|main', 'claude:planner|main')
    """
    return f"{agent}|{identifier}" if agent == type_ else f"{agent}:{type_}|{identifier}"
