"""Compiles the call of a tool: agents and flows have actions of their own (pure)."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import JsonValue

from app.domain.program import Action
from app.domain.references import literal
from leadhand.models.tool_names import AGENT, BUILT_IN_TOOLS, FLOW, shape_of

#: Seconds of an agent's step, and of one whose child session has limits of its own.
_AGENT_S, CHILD_S = 3600.0, 30 * 24 * 3600.0


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
