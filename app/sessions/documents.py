"""The document that a session was submitted with, and the same with changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from app.core.addresses import SessionRef
from app.errors import InvalidDocument, SpecForeign
from app.programs import Registry
from app.sessions.drafts import stored_text
from app.store.store import Store
from leadhand.errors import ControlRefused
from leadhand.flows.documents import AnyDocument, Branch, FlowDocument, FlowStep
from leadhand.flows.structure import ToolStep
from leadhand.graphs.documents import GraphDocument, GraphStep
from leadhand.models.documents import Checker, Doer, LoopDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from leadhand.models.suggestions import nearest
from leadhand.models.tool_schemas import AGENT
from leadhand.models.validation_messages import first_error

#: Fields of a document.
Fields = dict[str, object]
_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
#: The fields of a flow's step that have other steps.
_INNER = ("steps", "branches", "then", "otherwise")


class Changes(NamedTuple):
    """What is different in the new session."""

    task: str | None = None
    checkers: tuple[Checker, ...] | None = None
    agent: str | None = None
    inputs: Mapping[str, JsonValue] = {}
    #: Of a graph or flow: another tool for a step, or in place of a tool.
    tools: Mapping[str, str] = {}
    label: str | None = None


def submitted_document(
    store: Store, registry: Registry, ref: SessionRef, fields: Mapping[str, str], verb: str
) -> AnyDocument:
    """Returns the stored document of a session. Raises ControlRefused if it is missing or unsigned.

    Raises ControlRefused also if its signature is invalid.
    """
    text = store.copies().request(ref)
    if text is None:
        hint = "its document is not stored; submit it again"
        raise ControlRefused(ref.id, verb, fields.get("status", ""), hint)
    try:
        registry.check_request(ref, text, fields)
    except SpecForeign as error:
        hint = f"{error.why}, so it may not run; submit the document again"
        raise ControlRefused(ref.id, verb, fields.get("status", ""), hint) from None
    return _DOCUMENT.validate_json(text)


def with_changes(document: AnyDocument, changes: Changes) -> AnyDocument:
    """Returns a copy of the document with these changes. Raises InvalidDocument if one is unfit."""
    new: Fields = {}
    if changes.label is not None:
        new["label"] = changes.label
    if changes.task is not None:
        new |= _task(document, changes.task)
    if changes.checkers is not None:
        new |= _checkers(document, changes.checkers)
    if changes.agent is not None:
        new |= _agent(document, changes.agent)
    if changes.inputs:
        new |= _inputs(document, changes.inputs)
    if changes.tools:
        new |= _tools(document, changes.tools)
    try:
        return _DOCUMENT.validate_json(stored_text(document.model_copy(update=new)))
    except ValidationError as error:
        raise InvalidDocument("document", document.kind, first_error(error)) from None


def _task(document: AnyDocument, task: str) -> Fields:
    match document:
        case LoopDocument():
            return {"task": task}
        case PlanDocument():
            return {"request": task}
        case _:
            hint = f"a {document.kind} has no single task; change its file and run that"
            raise InvalidDocument("task", task, hint)


def _checkers(document: AnyDocument, checkers: tuple[Checker, ...]) -> Fields:
    match document:
        case LoopDocument() | PlanDocument():
            return {"checkers": checkers}
        case WorkflowDocument() if len(document.phases) == 1:
            return {"phases": (document.phases[0].model_copy(update={"checkers": checkers}),)}
        case WorkflowDocument():
            hint = "it has several phases; change its file and run that"
        case _:
            hint = f"a {document.kind} has no checkers of its own; change its file and run that"
    raise InvalidDocument("checkers", len(checkers), hint)


def _agent(document: AnyDocument, agent: str) -> Fields:
    doer = {"doer": Doer(agent=agent)}
    match document:
        case LoopDocument() | PlanDocument():
            return {**doer}
        case WorkflowDocument():
            return {**doer, "phases": tuple(one.model_copy(update=doer) for one in document.phases)}
        case FlowDocument():
            return {"agents": {**dict.fromkeys(document.agents, agent), "*": agent}}
        case GraphDocument():
            return _agent_of_graph(document, agent)
        case _:
            raise InvalidDocument("agent", agent, f"a {document.kind} has no agent")


def _agent_of_graph(document: GraphDocument, agent: str) -> Fields:
    """The steps of a graph, in which another agent answers, or does the work of a child session."""
    steps = tuple(_with_agent(step, agent) for step in document.steps)
    if steps == document.steps:
        hint = "no step of the graph calls an agent or runs a session; name a tool"
        raise InvalidDocument("agent", agent, hint)
    return {"steps": steps}


def _with_agent(step: GraphStep, agent: str) -> GraphStep:
    if step.session is not None:
        session = step.session.model_copy(update=_agent(step.session, agent))
        return step.model_copy(update={"session": session})
    if (step.tool or "").startswith(AGENT):
        return step.model_copy(update={"tool": f"{AGENT}{agent}"})
    return step


def _inputs(document: AnyDocument, inputs: Mapping[str, JsonValue]) -> Fields:
    if not isinstance(document, FlowDocument | GraphDocument):
        name = next(iter(inputs))
        raise InvalidDocument(f"inputs.{name}", inputs[name], f"a {document.kind} has no inputs")
    known: Mapping[str, JsonValue] = {**document.inputs}
    for name in inputs:
        if name not in known:
            raise InvalidDocument(f"inputs.{name}", name, _known("input", name, known))
    return {"inputs": {**known, **{n: _typed(value, known[n]) for n, value in inputs.items()}}}


def _typed(value: JsonValue, old: JsonValue) -> JsonValue:
    """A new value of an input: text for an input that is no text is JSON, if it can be parsed."""
    if not isinstance(value, str) or isinstance(old, str) or old is None:
        return value
    try:
        parsed: JsonValue = json.loads(value)
    except ValueError:
        return value
    return parsed


def _tools(document: AnyDocument, tools: Mapping[str, str]) -> Fields:
    if not isinstance(document, FlowDocument | GraphDocument):
        name = next(iter(tools))
        hint = f"a {document.kind} has no steps that name tools"
        raise InvalidDocument(f"tools.{name}", tools[name], hint)
    known = set[str]()
    steps = tuple(_with_tools(step, tools, known) for step in document.steps)
    for name in tools:
        if name not in known:
            hint = _known("step or tool", name, sorted(known))
            raise InvalidDocument(f"tools.{name}", name, hint)
    return {"steps": steps}


def _with_tools(
    step: FlowStep | GraphStep | Branch, tools: Mapping[str, str], known: set[str]
) -> BaseModel:
    """The step with other tools, also in the steps in it; adds what can be replaced to `known`."""
    if isinstance(step, GraphStep | ToolStep):
        name = step.name if isinstance(step, GraphStep) else step.label
        names = [one for one in (name, step.tool) if one is not None]
        known.update(names)
        tool = next((tools[one] for one in names if one in tools), None)
        return step if tool is None else step.model_copy(update={"tool": tool})
    inner = {field: getattr(step, field, None) for field in _INNER}
    changed = {
        field: tuple(_with_tools(one, tools, known) for one in found)
        for field, found in inner.items()
        if found
    }
    return step.model_copy(update=changed) if changed else step


def _known(what: str, name: str, known: Iterable[str]) -> str:
    near = nearest(name, list(known))
    meant = f"; did you mean {near!r}?" if near else ""
    return f"there is no {what} {name!r}; there are: {', '.join(known) or 'none'}{meant}"
