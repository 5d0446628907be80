"""Which agents the steps of a flow ask: agentTypes, mapped to agents of agents.toml (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from leadhand.flows.structure import steps_of

if TYPE_CHECKING:
    from leadhand.flows.documents import FlowDefinition


def agent_of(flow: FlowDefinition, type_: str) -> str:
    """Returns the agent of agents.toml that a flow's agentType is mapped to, or the type itself."""
    return flow.agents.get(type_) or flow.agents.get("*") or type_


def merge_agents(own: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """Merges two maps of agentTypes to agents; `above` takes precedence, and its `*` replaces all.

    >>> merge_agents({"a": "x", "b": "y"}, {"b": "z"}), merge_agents({"a": "x"}, {"*": "z"})
    ({'a': 'x', 'b': 'z'}, {'*': 'z'})
    """
    return dict(above) if "*" in above else {**own, **above}


def merge_subflow_agents(own: Mapping[str, str], around: Mapping[str, str]) -> dict[str, str]:
    """Merges a subflow's map of agentTypes with the outer flow's, which wins except for its `*`.

    >>> merge_subflow_agents({"a": "x", "b": "y"}, {"b": "z", "*": "w"})
    {'*': 'w', 'a': 'x', 'b': 'z'}
    """
    last = {"*": around["*"]} if "*" in around else {}
    return {**last, **own, **{type_: name for type_, name in around.items() if type_ != "*"}}


def agents_asked(flow: FlowDefinition) -> Iterator[str | None]:
    """Yields the names of the agents that a flow's own steps use; None means the default agent."""
    for one in steps_of(flow):
        type_ = getattr(one.step, "agent_type", None)
        if type_ is not None:
            yield agent_of(flow, type_)
        if one.step.type == "check":
            checker = one.step.checker
            if checker.prompt is not None or checker.rubric is not None:
                yield agent_of(flow, checker.agent) if checker.agent else None
