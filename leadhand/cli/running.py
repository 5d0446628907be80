"""Waits for the session that a command started: progress, result, exit code and warnings."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

import click

from leadhand.cli.connect import tell
from leadhand.cli.exit_codes import HALTED, code_of
from leadhand.cli.questions import ASKED, answering_questions
from leadhand.cli.render.live import PlainScreen, screen_beside_json, screen_for
from leadhand.cli.render.tables import echo_json
from leadhand.client.client import Client
from leadhand.flows.documents import FlowDefinition, FlowRun
from leadhand.flows.structure import agents_asked, merge_agents, merge_subflow_agents, steps_of
from leadhand.models.documents import LoopDocument, PhaseDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from leadhand.models.views.fleet import AgentView
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import SessionView
from leadhand.run import Audience, Interrupted, wait_for_session


class Terminated(SystemExit):
    """SIGTERM arrived while the command waited."""


@contextmanager
def leaving_running(sessions: Sequence[str], state: str = "continues") -> Iterator[None]:
    """Within its `with` block, SIGTERM prints how to follow the sessions, and exits.

    `state` is the predicate of a sentence on a session.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread can handle signals.
        return
    before = signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        yield
    except Terminated:
        for session in sessions:
            tell(f"session {session} {state}; follow it with: leadhand watch {session}")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def following(session: str) -> Iterator[None]:
    """Within its `with` block, SIGTERM or Ctrl-C exits and prints that the session continues."""
    try:
        with leaving_running([session]):
            yield
    except KeyboardInterrupt:
        tell(f"session {session} continues; stop it with: leadhand stop {session}")
        raise SystemExit(HALTED) from None


def _raise_terminated(_number: int, _frame: FrameType | None) -> None:
    raise Terminated(HALTED)


def wait_and_show(
    client: Client,
    session: SessionView,
    *,
    as_json: bool,
    summary: Callable[[ResultView], Iterable[str]],
    is_value: bool = False,
) -> int:
    """Wait for the session, print its result and return its exit code; Ctrl-C stops it.

    With `is_value` the result is printed alone, for other programs to read.
    """
    audience = screen_beside_json() if as_json or is_value else screen_for(sys.stdout)
    try:
        with (
            leaving_running([session.id]),
            answering_questions(client, [session.id], screen=audience, as_json=as_json),
        ):
            result = wait_for_session(client, session, say=tell, audience=audience, shown=ASKED)
        code = code_of(result.status)
    except Interrupted as interrupted:
        result, code = interrupted.result, HALTED
    if as_json:
        echo_json(result)
    else:
        print_summary(summary(result), audience)
    return code


def print_summary(lines: Iterable[str], audience: Audience | None) -> None:
    """Print the summary of a result, without a failure that was printed beside its step."""
    for line in lines:
        click.echo(audience.once(line) if isinstance(audience, PlainScreen) else line)


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
