"""Flows as tools: a step that calls one gets its document, as a child session runs it."""

from __future__ import annotations

from pydantic import JsonValue

from app.catalog.catalog import Catalog
from app.compiler.subflows import literals
from app.domain.program import Action, Program, Step
from app.errors import FlowDisabled, FlowUnknown, InvalidDocument
from leadhand.flows.documents import AnyDocument, FlowDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.tool_names import FLOW
from leadhand.models.tool_schemas import parameters_of
from leadhand.models.views import FlowView, ToolHere, ToolView


def with_flows(program: Program, document: AnyDocument, catalog: Catalog) -> Program:
    """Copies the flows that a graph's steps call into its program. Raises InvalidDocument.

    They are copied when the session is created, so that later changes of the files do not affect
    it. Raises InvalidDocument for an unknown flow and for arguments that it does not have.
    """
    if not isinstance(document, GraphDocument):
        return program
    called = [(number, step) for number, step in enumerate(document.steps) if is_flow(step.called)]
    if not called:
        return program
    found = dict[str, JsonValue]()
    for number, step in called:
        name = step.called.removeprefix(FLOW)
        flow = _flow(f"steps[{number}].tool", name, catalog)
        for argument in step.arguments:
            if argument not in flow.inputs:
                known = ", ".join(sorted(flow.inputs)) or "none"
                hint = f"flow {name!r} has no such input; its inputs are: {known}"
                raise InvalidDocument(f"steps[{number}].arguments.{argument}", None, hint)
        for needed, default in flow.inputs.items():
            if default is None and needed not in step.arguments:
                hint = f"flow {name!r} requires this input; add it"
                raise InvalidDocument(f"steps[{number}].arguments.{needed}", None, hint)
        found[name] = _document(flow, document)
    body = tuple(_brought(node, found) if isinstance(node, Step) else node for node in program.body)
    return program.model_copy(update={"body": body})


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


def _flow(field: str, name: str, catalog: Catalog) -> FlowDocument:
    try:
        return catalog.document(name)
    except FlowUnknown:
        hint = "there is no such flow; `leadhand flows` lists the flows"
    except FlowDisabled as error:
        hint = f"it cannot be used: {error}"
    raise InvalidDocument(field, f"{FLOW}{name}", hint)


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
