"""Subflows: the flows that a flow document contains, each the document of a child session.

They are copied when a session is created, so that later changes of the files do not affect it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from app.compiler.templates import Texts
from app.domain.references import literal
from app.errors import InvalidDocument
from leadhand.flows.agents import merge_subflow_agents
from leadhand.flows.documents import (
    CheckStep,
    CommandStep,
    FlowDefinition,
    FlowDocument,
    LlmStep,
    SubflowStep,
)
from leadhand.flows.structure import Brought, faults_of_files, faults_of_inputs, steps_of


def types_in(document: FlowDocument) -> set[str]:
    """Returns all agentTypes that the flow and its subflows use or map to agents."""
    found = set[str]()
    for flow in (document, *document.flows.values()):
        found |= flow.agents.keys() - {"*"}
        for one in steps_of(flow):
            checker = one.step.checker if isinstance(one.step, CheckStep) else None
            found.add(getattr(one.step, "agent_type", None) or "")
            found.add(getattr(checker, "agent", None) or "")
    return found - {""}


def parts_of(document: FlowDocument) -> Iterator[tuple[str, FlowDefinition]]:
    """Yields a flow and each subflow, with the prefix of its paths in errors (`flows.NAME.`)."""
    yield "", document
    for name, flow in document.flows.items():
        agents = merge_subflow_agents(flow.agents, document.agents)
        yield f"flows.{name}.", flow.model_copy(update={"agents": agents})


def faults_in_files(flow: FlowDefinition, brought: Brought) -> Iterator[InvalidDocument]:
    """Yields an error for each unknown reference in the texts of a flow's files."""
    for fault in faults_of_files(flow, brought):
        yield InvalidDocument(fault.path, fault.text, fault.message)


def faults_of_subflows(document: FlowDocument) -> Iterator[InvalidDocument]:
    """Yields an error for each subflow that is missing or does not get its inputs."""
    for path, flow in parts_of(document):
        for one in steps_of(flow):
            for name in one.step.flow_names if isinstance(one.step, SubflowStep) else ():
                if name not in document.flows:
                    hint = "there is no such flow; `leadhand flows` lists the flows"
                    yield InvalidDocument(f"{path}{one.path}.flowNames", name, hint)
        for fault in faults_of_inputs(flow, document.flows):
            yield InvalidDocument(f"{path}{fault.path}", fault.text, fault.message)


def child_document(
    document: FlowDocument, name: str, inputs: Mapping[str, str], texts: Texts
) -> dict[str, JsonValue]:
    """Builds the document of a subflow's child session; only its inputs may have references."""
    flow = document.flows[name]
    child = {
        **flow.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
        "kind": "flow",
        "name": name,
        "agents": merge_subflow_agents(flow.agents, document.agents),
        "attempts": flow.attempts or document.attempts,
        **_protected(document, flow),
        **document.model_dump(mode="json", include={"priority", "cwd", "place", "leave_out"}),
        **_bundle(document, flow),
    }
    found = literals(child)
    assert isinstance(found, dict)
    passed = {key: texts.translate(text) for key, text in inputs.items()}
    defaults = {key: literal(text) for key, text in flow.inputs.items() if text is not None}
    found["inputs"] = {**defaults, **passed}
    return found


def _protected(document: FlowDocument, flow: FlowDefinition) -> dict[str, JsonValue]:
    """The protected files of both: a subflow adds some, and removes none."""
    both = dict.fromkeys((*document.protected, *flow.protected))
    return {"protected": [one.model_dump(mode="json") for one in both]} if both else {}


def _bundle(document: FlowDocument, flow: FlowDefinition) -> dict[str, JsonValue]:
    """The flows and files of the document that one of its subflows needs."""
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
        "commands": {n: m for n, m in document.commands.items() if n in commands},
        "markdown": {n: m for n, m in document.markdown.items() if n in files},
    }
    bundled = document.model_copy(update=parts)
    needed = {name for name, part in parts.items() if part or name != "markdown"}
    return bundled.model_dump(mode="json", include=needed, exclude_none=True)


def literals(value: JsonValue) -> JsonValue:
    """Escapes all texts in a JSON value, at any depth, so that none is parsed as a reference."""
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, list):
        return [literals(item) for item in value]
    if isinstance(value, dict):
        return {name: literals(item) for name, item in value.items()}
    return value
