"""Flows as tools of other documents, and the catalog flow that a session was created from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue

from app.compiler.graph import known_arguments
from app.compiler.subflows import types_in
from app.core.program import Action, Program, Step
from app.core.references import literals
from app.errors import InvalidDocument
from app.fleet.flow_catalog import Catalog, hash_of
from leadhand.errors import FlowDisabled, FlowUnknown
from leadhand.flows.documents import AnyDocument, FlowDocument, FlowRun
from leadhand.flows.structure import merge_agents
from leadhand.flows.typed_inputs import faults_of_typed, text_of
from leadhand.graphs.documents import GraphDocument, GraphStep
from leadhand.models.suggestions import listed
from leadhand.models.tool_schemas import FLOW, misfits, parameters_of
from leadhand.models.views.fleet import ToolHere, ToolView
from leadhand.models.views.shared import FlowView

#: What a graph's steps call, by their numbers: a flow, or why there is none.
CalledFlows: TypeAlias = Mapping[int, FlowDocument | InvalidDocument]


def called_flows(document: AnyDocument, catalog: Catalog) -> CalledFlows:
    """Reads the flows that the steps of a graph call; empty for other documents."""
    return {
        number: _flow(f"steps[{number}].tool", step.called, catalog)
        for number, step in enumerate(document.steps if isinstance(document, GraphDocument) else ())
        if is_flow(step.called)
    }


def with_flows(program: Program, document: AnyDocument, called: CalledFlows) -> Program:
    """Copies the flows that a graph's steps call into its program. Raises InvalidDocument.

    They are copied when the session is created, so that later changes of the files do not affect
    it.
    """
    if not called or not isinstance(document, GraphDocument):
        return program
    found = dict[str, JsonValue]()
    for number, flow in called.items():
        if isinstance(flow, InvalidDocument):
            raise flow
        found[document.steps[number].called.removeprefix(FLOW)] = _document(flow, document)
    body = tuple(_brought(node, found) if isinstance(node, Step) else node for node in program.body)
    return program.model_copy(update={"body": body})


def faults_of_called_flows(document: AnyDocument, called: CalledFlows) -> Iterator[InvalidDocument]:
    """Yields an error for each unknown flow that a graph calls, and for arguments that do not fit.

    The values that are known before any step has run are compared with the flow's input schema.
    """
    if not isinstance(document, GraphDocument):
        return
    for number, flow in called.items():
        if isinstance(flow, InvalidDocument):
            yield flow
            continue
        step = document.steps[number]
        for name, hint in _misfits(flow, document, step):
            field = f"steps[{number}].arguments.{name}"
            yield InvalidDocument(field, step.arguments.get(name), hint)


def _misfits(
    flow: FlowDocument, document: GraphDocument, step: GraphStep
) -> Iterator[tuple[str, str]]:
    for name in step.arguments:
        if name not in flow.inputs:
            known = listed(sorted(flow.inputs))
            yield name, f"flow {flow.name!r} has no such input; its inputs are: {known}"
    for name, default in flow.inputs.items():
        if default is None and name not in step.arguments:
            yield name, f"flow {flow.name!r} requires this input; add it"
    if flow.input_schema is not None:
        known_values = {one.name: one.value for one in known_arguments(document, step)}
        yield from misfits(step.called, flow.input_schema, known_values)


def is_flow(tool: str) -> bool:
    """Whether the name of a tool is that of a flow: it begins with `flow:`."""
    return tool.startswith(FLOW)


def flow_tool(flow: FlowView) -> ToolView:
    """Converts a catalog flow to the API's view of a tool, with a JSON schema of its inputs."""
    properties: dict[str, JsonValue] = {}
    for one in flow.inputs:
        has_default = one.default is not None
        default: dict[str, JsonValue] = {"default": one.default} if has_default else {}
        properties[one.name] = {"type": "string", **default} | (one.json_schema or {})
    required: list[JsonValue] = [one.name for one in flow.inputs if one.default is None]
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    here = ToolHere(name=f"{FLOW}{flow.name}", kind="flow", about=flow.description)
    why_not = {"any": flow.error or "it is disabled"} if flow.disabled else {}
    return ToolView(
        **here.model_dump(include={"name", "kind", "about"}),
        parameters=parameters_of(schema),
        input_schema=schema,
        usable_at=[] if flow.disabled else ["any"],
        why_not=why_not,
    )


def _flow(field: str, tool: str, catalog: Catalog) -> FlowDocument | InvalidDocument:
    name = tool.removeprefix(FLOW)
    try:
        return catalog.document(name)
    except FlowUnknown as error:
        hint = f"it {error.why}"
    except FlowDisabled as error:
        hint = f"it cannot be used: {error}"
    return InvalidDocument(field, tool, hint)


def _document(flow: FlowDocument, graph: GraphDocument) -> JsonValue:
    """The document of the child session, in which nothing is a reference."""
    own = flow.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    around = graph.model_dump(mode="json", include={"priority", "cwd", "place"}, exclude_none=True)
    return literals({**own, "kind": "flow", "name": flow.name, **around})


def _brought(step: Step, found: dict[str, JsonValue]) -> Step:
    name = str(step.inputs.get("flow", ""))
    if step.action is not Action.CHILD or name not in found:
        return step
    return step.model_copy(update={"inputs": {**step.inputs, "document": found[name]}})


class Source(BaseModel):
    """Stored with the session, so that a later change of the file can be detected."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    flow: str
    hash: str
    inputs: dict[str, str] = {}
    agents: dict[str, str] = {}
    #: The budget in the file, and the names of the limits that the run overrides.
    limits: dict[str, int] = {}
    given: tuple[str, ...] = ()
    #: After a new file was adopted: the steps whose child sessions keep their old flow.
    kept: dict[str, str] = {}

    def limits_now(self, written: FlowDocument, usual: Mapping[str, int]) -> dict[str, int]:
        """Returns limits that changed in the flow's file since the start and the run did not set.

        Limits that are the same in the file are left out: a resume may have raised them since.
        """
        now = written.budget.limits()
        names = dict.fromkeys([*self.limits, *now])
        return {
            name: now.get(name, usual[name])
            for name in names
            if now.get(name) != self.limits.get(name) and name not in self.given
        }


def source_of(document: FlowDocument, run: FlowRun, applied: FlowDocument) -> Source:
    """Builds the record of a session's catalog flow: its name, hash, inputs, agents and limits.

    `applied` is the flow with the inputs of this run.
    """
    return Source(
        flow=document.name,
        hash=hash_of(document),
        inputs={name: str(applied.inputs[name]) for name in run.inputs},
        agents=run.agents,
        limits=document.budget.limits(),
        given=tuple(run.budget.limits()),
    )


def apply_run(document: FlowDocument, run: FlowRun) -> FlowDocument:
    """Returns a copy of a catalog flow and its subflows with a run's inputs, agents and options.

    Raises InvalidDocument for inputs and agentTypes that the flow does not have.
    """
    inputs = texts_of_run(document, run)
    _check_agent_types(document, run.agents)
    return document.model_copy(
        update={
            "inputs": {**document.inputs, **inputs},
            "agents": merge_agents(document.agents, run.agents),
            "flows": {
                name: flow.model_copy(update={"agents": merge_agents(flow.agents, run.agents)})
                for name, flow in document.flows.items()
            },
            "cwd": run.working_folder,
            "worktree": run.worktree,
            "label": run.title,
            "priority": run.priority,
            "place": run.place,
            "webhook": run.webhook,
            "protected": (*document.protected, *run.protected),
            "budget": document.budget.model_copy(update=run.budget.model_dump(exclude_none=True)),
        }
    )


def texts_of_run(document: FlowDocument, run: FlowRun) -> dict[str, str]:
    """Converts a run's inputs to the texts that are stored. Raises InvalidDocument for bad ones."""
    texts = dict[str, str]()
    for name, value in run.inputs.items():
        if name not in document.inputs:
            known = listed(sorted(document.inputs))
            hint = f"flow {document.name!r} has no such input; its inputs are: {known}"
            raise InvalidDocument(f"inputs.{name}", value, hint)
        text = text_of(value, document.input_schema, name)
        if not isinstance(text, str):
            hint = f"flow {document.name!r} declares no type for it; give a text"
            raise InvalidDocument(f"inputs.{name}", value, hint)
        texts[name] = text
    for fault in faults_of_typed(document.input_schema, {**document.inputs, **texts}):
        hint = f"{fault.message}; {fault.hint}"
        raise InvalidDocument(fault.path, run.inputs.get(fault.path.removeprefix("inputs.")), hint)
    return texts


def _check_agent_types(document: FlowDocument, agents: Mapping[str, str]) -> None:
    types = types_in(document)
    for type_, name in agents.items():
        if type_ != "*" and type_ not in types:
            known = listed(sorted(types))
            hint = f"flow {document.name!r} has no such agentType; its agentTypes are: {known}"
            raise InvalidDocument(f"agents.{type_}", name, hint)
