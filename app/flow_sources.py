"""Which flow of the catalog a session was made of, as of when, and how it was run."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from app.errors import InvalidDocument
from app.frontends.flow_children import led, types_in
from leadhand.flow_documents import FlowDocument, FlowRun


class Source(BaseModel):
    """What a session keeps of it, so that it can be told when the file is another one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    flow: str
    hash: str
    inputs: dict[str, str] = {}
    agents: dict[str, str] = {}
    #: What the file said of the budget, and which limits the run was given instead.
    limits: dict[str, int] = {}
    given: tuple[str, ...] = ()
    #: Of the file that was taken over: steps whose child sessions go on by their flow as it was.
    kept: dict[str, str] = {}

    def limits_now(self, written: FlowDocument, usual: Mapping[str, int]) -> dict[str, int]:
        """What the file as it is now changes of the session's limits.

        What it says as before is not touched: a resume may have raised that since.
        """
        now = written.budget.limits()
        names = dict.fromkeys([*self.limits, *now])
        return {
            name: now.get(name, usual[name])
            for name in names
            if now.get(name) != self.limits.get(name) and name not in self.given
        }


def run_of(document: FlowDocument, run: FlowRun) -> FlowDocument:
    """A flow of the catalog as it is to be run; who works in it works in its subflows too.

    Raises InvalidDocument for inputs and agentTypes that it has not.
    """
    _check_known(document, run.inputs)
    _check_types(document, run.agents)
    return document.model_copy(
        update={
            "inputs": {**document.inputs, **run.inputs},
            "agents": led(document.agents, run.agents),
            "flows": {
                name: flow.model_copy(update={"agents": led(flow.agents, run.agents)})
                for name, flow in document.flows.items()
            },
            "cwd": run.working_folder,
            "label": run.title,
            "priority": run.priority,
            "place": run.place,
            "webhook": run.webhook,
            "budget": document.budget.model_copy(update=run.budget.model_dump(exclude_none=True)),
        }
    )


def _check_known(document: FlowDocument, inputs: Mapping[str, str]) -> None:
    for name, text in inputs.items():
        if name not in document.inputs:
            known = ", ".join(sorted(document.inputs)) or "none"
            hint = f"flow {document.name!r} has no such input; its inputs are: {known}"
            raise InvalidDocument(f"inputs.{name}", text, hint)


def _check_types(document: FlowDocument, agents: Mapping[str, str]) -> None:
    types = types_in(document)
    for type_, name in agents.items():
        if type_ != "*" and type_ not in types:
            known = ", ".join(sorted(types)) or "none"
            hint = f"flow {document.name!r} has no such agentType; its agentTypes are: {known}"
            raise InvalidDocument(f"agents.{type_}", name, hint)
