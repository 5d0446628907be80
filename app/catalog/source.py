"""The catalog flow that a session was created from, and the options of its run."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from app.catalog.flow_catalog import hash_of
from app.compiler.subflows import types_in
from app.errors import InvalidDocument
from leadhand.flows.agents import merge_agents
from leadhand.flows.documents import FlowDocument, FlowRun
from leadhand.flows.typed_inputs import faults_of_typed, text_of
from leadhand.models.suggestions import listed


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
