"""Warns that a limit on cost has no effect where agents' costs are unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from leadhand.cli.connect import tell
from leadhand.client.client import Client
from leadhand.flows.agents import agents_asked, merge_agents, merge_subflow_agents
from leadhand.flows.documents import FlowDefinition, FlowRun
from leadhand.flows.structure import steps_of
from leadhand.models.documents import LoopDocument, PhaseDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from leadhand.models.views.fleet import AgentView


def warn_about_cost_limit(
    client: Client, document: LoopDocument | WorkflowDocument | PlanDocument
) -> None:
    """Warns about a document's agents whose cost is unknown, if the document limits the cost."""
    if document.budget.cost_usd is not None:
        _warn(client, lambda: agents_of(document))


def warn_about_cost_limit_of_flow(client: Client, name: str, run: FlowRun) -> None:
    """Warns about a flow's agents whose cost is unknown, if the run limits the cost."""
    if run.budget.cost_usd is not None:
        _warn(client, lambda: _agents_of_flow(lambda one: _definition(client, one), name, run))


def _warn(client: Client, agents: Callable[[], Iterable[str | None]]) -> None:
    for text in unknown_costs(agents(), client.agents()):
        tell(f"warning: {text}")


def unknown_costs(asked: Iterable[str | None], agents: Iterable[AgentView]) -> Iterator[str]:
    """Yields a warning for each requested agent that reports no cost and has no prices.

    None is the default agent.
    """
    known = {agent.name: agent for agent in agents}
    default = next((agent.name for agent in known.values() if agent.default), None)
    for name in dict.fromkeys(default if one is None else one for one in asked):
        agent = known.get(name) if name is not None else None
        if agent is not None and agent.knows_cost is False:
            yield (
                f"--max-cost has no effect on agent {name!r}: it reports no cost; "
                "write its prices in agents.toml, or use --max-tokens"
            )


def agents_of(document: LoopDocument | WorkflowDocument | PlanDocument) -> Iterator[str | None]:
    """Yields the name of each agent that a document uses, None for the default agent."""
    if isinstance(document, PlanDocument):
        yield from _agents_of_plan(document)
        return
    loops: tuple[LoopDocument | PhaseDocument, ...]
    loops = document.phases if isinstance(document, WorkflowDocument) else (document,)
    for loop in loops:
        doer = loop.doer or document.doer
        if doer is None or doer.agent is not None:
            yield doer.agent if doer is not None else None
        for one in loop.checkers:
            if one.prompt or one.rubric:
                yield one.agent or (doer.agent if doer is not None else None)


def _agents_of_plan(document: PlanDocument) -> Iterator[str | None]:
    """The team lead, and the agents that carry out and judge the tasks that are known."""
    if document.tasks is None:
        yield document.agent
    doer = document.doer
    if doer is None or doer.agent is not None:
        yield doer.agent if doer is not None else None
    yield from (task.agent for task in document.tasks or () if task.agent is not None)
    for one in document.checkers:
        if one.prompt or one.rubric:
            yield one.agent or (doer.agent if doer is not None else None)


def _agents_of_flow(
    definition: Callable[[str], FlowDefinition | None], name: str, run: FlowRun
) -> Iterator[str | None]:
    """The agents of a flow and of its subflows, as the run maps their agentTypes."""
    around: Mapping[str, str] = {}
    names = [name]
    for one in names:
        flow = definition(one)
        if flow is None:
            continue
        agents = merge_subflow_agents(merge_agents(flow.agents, run.agents), around)
        around = agents if one == name else around
        yield from agents_asked(flow.model_copy(update={"agents": agents}))
        for step in (found.step for found in steps_of(flow)):
            if step.type == "subflow":
                names += [sub for sub in step.flow_names if sub not in names]


def _definition(client: Client, name: str) -> FlowDefinition | None:
    found = client.flow(name).definition
    return FlowDefinition.model_validate(found) if found is not None else None
