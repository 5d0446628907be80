"""Flows as tools: a step that calls one gets its document, as a child session runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from pydantic import JsonValue

from app.catalog.flow_catalog import Catalog
from app.compiler.graph import known_arguments
from app.compiler.subflows import literals
from app.domain.program import Action, Program, Step
from app.errors import InvalidDocument
from leadhand.errors import FlowDisabled, FlowUnknown
from leadhand.flows.documents import AnyDocument, FlowDocument
from leadhand.graphs.documents import GraphDocument, GraphStep
from leadhand.models.suggestions import listed
from leadhand.models.tool_names import FLOW
from leadhand.models.tool_schemas import parameters_of
from leadhand.models.tool_values import misfits
from leadhand.models.views.fleet import ToolHere, ToolView
from leadhand.models.views.flow import FlowView

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
