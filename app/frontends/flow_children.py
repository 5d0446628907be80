"""Subflows: the flows that a flow brings along, each the document of a child session.

They are taken along when a session is made, so that a flow which runs is never another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.errors import InvalidDocument
from app.frontends.flow_texts import Texts
from app.references import literal
from app.tools_here import Wanted
from leadhand.flow_documents import (
    CheckStep,
    CommandStep,
    FlowDefinition,
    FlowDocument,
    LlmStep,
    SubflowStep,
    ToolStep,
)
from leadhand.flow_structure import (
    Brought,
    Placed,
    arranged,
    faults_of_files,
    faults_of_inputs,
)


class Asked(NamedTuple):
    """A step that asks an agent: which one of agents.toml that is, and as which model."""

    path: str
    by: str
    #: None for the default agent.
    agent: str | None
    model: str | None

    @property
    def field(self) -> str:
        return f"{self.path}.{self.by}"

    @property
    def model_field(self) -> str:
        return f"{self.path}.model"


def agent_of(flow: FlowDefinition, type_: str) -> str:
    """The agent of agents.toml that a flow's agentType stands for."""
    return flow.agents.get(type_) or flow.agents.get("*") or type_


def led(own: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """Who works for each agentType, where somebody above has the last word; `*` is all of them.

    >>> led({"a": "x", "b": "y"}, {"b": "z"}), led({"a": "x"}, {"*": "z"})
    ({'a': 'x', 'b': 'z'}, {'*': 'z'})
    """
    return dict(above) if "*" in above else {**own, **above}


def led_within(own: Mapping[str, str], around: Mapping[str, str]) -> dict[str, str]:
    """Who works in a subflow: what the flow around it names holds, its `*` is the last resort.

    >>> led_within({"a": "x", "b": "y"}, {"b": "z", "*": "w"})
    {'*': 'w', 'a': 'x', 'b': 'z'}
    """
    last = {"*": around["*"]} if "*" in around else {}
    return {**last, **own, **{type_: name for type_, name in around.items() if type_ != "*"}}


def types_in(document: FlowDocument) -> set[str]:
    """Every agentType that the flow or one of its subflows says."""
    found = set[str]()
    for flow in (document, *document.flows.values()):
        found |= flow.agents.keys() - {"*"}
        for one in steps_of(flow):
            checker = one.step.checker if isinstance(one.step, CheckStep) else None
            found.add(getattr(one.step, "agent_type", None) or "")
            found.add(getattr(checker, "agent", None) or "")
    return found - {""}


def steps_of(flow: FlowDefinition) -> Iterator[Placed]:
    """Every step, outer before inner, in the order written."""
    yield from _within(arranged(flow.steps))


def asked(document: FlowDocument) -> Iterator[Asked]:
    """Every agent that is asked, in subflows too."""
    for path, flow in parts_of(document):
        for one in steps_of(flow):
            type_, model = getattr(one.step, "agent_type", None), getattr(one.step, "model", None)
            if type_ is not None:
                yield Asked(f"{path}{one.path}", "agentType", agent_of(flow, type_), model)
            checker = one.step.checker if isinstance(one.step, CheckStep) else None
            # Whether a rubric asks an agent is in its file, which may change until then.
            if checker is not None and (checker.agent or checker.prompt is not None):
                agent = agent_of(flow, checker.agent) if checker.agent else None
                yield Asked(f"{path}{one.path}.checker", "agent", agent, checker.model)


def parts_of(document: FlowDocument) -> Iterator[tuple[str, FlowDefinition]]:
    """The flow itself and its subflows, each with what its paths begin with."""
    yield "", document
    for name, flow in document.flows.items():
        agents = led_within(flow.agents, document.agents)
        yield f"flows.{name}.", flow.model_copy(update={"agents": agents})


def wanted_tools(document: FlowDocument) -> Iterator[Wanted]:
    """Every tool that is used, in subflows too."""
    for path, flow in parts_of(document):
        for one in steps_of(flow):
            if isinstance(one.step, ToolStep):
                yield Wanted(f"{path}{one.path}", one.step.tool, one.step.arguments)


def faults_in_files(flow: FlowDefinition, brought: Brought) -> Iterator[InvalidDocument]:
    """Where a file's texts ask for what the flow does not have."""
    for fault in faults_of_files(flow, brought):
        yield InvalidDocument(fault.path, fault.text, fault.message)


def faults_of_subflows(document: FlowDocument) -> Iterator[InvalidDocument]:
    """Where a step runs a flow that is not there, or does not give it its inputs."""
    for path, flow in parts_of(document):
        for one in steps_of(flow):
            for name in one.step.flow_names if isinstance(one.step, SubflowStep) else ():
                if name not in document.flows:
                    hint = "there is no such flow; `leadhand flows` lists those that are"
                    yield InvalidDocument(f"{path}{one.path}.flowNames", name, hint)
        for fault in faults_of_inputs(flow, document.flows):
            yield InvalidDocument(f"{path}{fault.path}", fault.text, fault.message)


def child_document(
    document: FlowDocument, name: str, inputs: Mapping[str, str], texts: Texts
) -> dict[str, JsonValue]:
    """What a child session is made of, for a step's inputs: all literal but what it is given."""
    flow = document.flows[name]
    child = {
        **flow.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
        "kind": "flow",
        "name": name,
        "agents": led_within(flow.agents, document.agents),
        "attempts": flow.attempts or document.attempts,
        **document.model_dump(mode="json", include={"priority", "cwd", "place"}),
        **_bundle(document, flow),
    }
    found = _literals(child)
    assert isinstance(found, dict)
    given = {key: texts.line(text) for key, text in inputs.items()}
    kept = {key: literal(text) for key, text in flow.inputs.items() if text is not None}
    found["inputs"] = {**kept, **given}
    return found


def _bundle(document: FlowDocument, flow: FlowDefinition) -> dict[str, JsonValue]:
    """Of what the document brings along, the part that one of its subflows needs."""
    flows = dict[str, FlowDefinition]()
    left = [flow]
    while left:
        for step in (one.step for one in steps_of(left.pop())):
            for name in step.flow_names if isinstance(step, SubflowStep) else ():
                if name not in flows and name in document.flows:
                    flows[name] = document.flows[name]
                    left.append(flows[name])
    steps = [one.step for part in (flow, *flows.values()) for one in steps_of(part)]
    commands = {step.command_name for step in steps if isinstance(step, CommandStep)}
    files = {step.markdown_file for step in steps if isinstance(step, LlmStep)}
    parts = {
        "flows": flows,
        "commands": {n: said for n, said in document.commands.items() if n in commands},
        "markdown": {n: said for n, said in document.markdown.items() if n in files},
    }
    bundled = document.model_copy(update=parts)
    needed = {name for name, part in parts.items() if part or name != "markdown"}
    return bundled.model_dump(mode="json", include=needed, exclude_none=True)


def _within(placed: tuple[Placed, ...]) -> Iterator[Placed]:
    for one in placed:
        yield one
        yield from _within(one.body)
        yield from _within(one.otherwise)


def _literals(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, list):
        return [_literals(item) for item in value]
    if isinstance(value, dict):
        return {name: _literals(item) for name, item in value.items()}
    return value
