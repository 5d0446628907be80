"""Derives the agents, commands, tools and folders that a document needs (pure)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from pydantic import JsonValue

from app.compiler.graph import known_arguments
from app.compiler.nodes import conversation
from app.compiler.subflows import parts_of
from leadhand.flows.documents import AnyDocument, CheckStep, FlowDefinition, FlowDocument, ResetStep
from leadhand.flows.structure import Placed, ToolStep, agent_of, steps_of
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import Checker, LoopDocument, PhaseDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from leadhand.models.tool_schemas import is_local_tool, shape_of

#: What a tool that is a checker gets, by the names of its parameters.
CHECKER_CONTEXT = frozenset(
    {"task", "work", "iteration", "phase", "history", "session", "step", "cwd"}
)
_NO_DEFAULT = "name one; no worker has a default agent (LEADHAND_DEFAULT_AGENT)"
_NO_DOER = "name one with agent, command or callable; no worker has a default agent"
_MAP_IT = ", or map it to another agent in the flow's `agents`"


class FolderChange(NamedTuple):
    """A step that continues a conversation in another folder than the one where it began."""

    path: str
    agent: str
    identifier: str
    folder: str | None
    #: The first step of the conversation, and its folder.
    began: str
    began_in: str


def folder_changes(
    before: str, flow: FlowDefinition, steps: Sequence[Placed]
) -> Iterator[FolderChange]:
    """Yields the steps that continue a conversation in another folder than the one it began in.

    A conversation that the flow resets somewhere may begin again in any folder.
    """
    forgotten = {
        _conversation_of(flow, one.step) for one in steps if isinstance(one.step, ResetStep)
    }
    began: dict[str, tuple[str, str]] = {}
    for one in steps:
        spoken = _conversation_of(flow, one.step)
        if spoken is None or spoken in forgotten:
            continue
        working_folder: str | None = getattr(one.step, "working_folder", None)
        folder = posixpath.normpath(working_folder or ".")
        first, first_in = began.setdefault(spoken, (one.path, folder))
        if folder != first_in:
            agent = agent_of(flow, str(getattr(one.step, "agent_type", "")))
            identifier = str(getattr(one.step, "identifier", ""))
            path = f"{before}{one.path}"
            yield FolderChange(path, agent, identifier, working_folder, first, first_in)


def _conversation_of(flow: FlowDefinition, step: object) -> str | None:
    """The conversation that a step is part of, or None."""
    type_, identifier = getattr(step, "agent_type", None), getattr(step, "identifier", None)
    if type_ is None or identifier is None:
        return None
    return conversation(agent_of(flow, type_), type_, identifier)


class AgentNeed(NamedTuple):
    """An agent that the document names, and the model that it is to use."""

    #: The field that an error names.
    field: str
    #: None for the default agent.
    agent: str | None
    model: str | None
    model_field: str
    #: The field and hint of the error if there is no default agent.
    unnamed_field: str
    unnamed_hint: str = _NO_DEFAULT
    #: Another way to fix an unknown agent, for the error text.
    other_way: str = ""
    #: The field that asks it to continue a conversation; empty where it begins a new one.
    conversation_field: str = ""


class CommandNeed(NamedTuple):
    """A command that a checker runs."""

    field: str
    command: str


class ToolNeed(NamedTuple):
    """A tool that a step calls, with its arguments."""

    path: str
    tool: str
    arguments: Mapping[str, JsonValue]
    #: The arguments of a graph's step whose values are known at submit.
    known: Mapping[str, JsonValue] = {}
    #: For a checker, which names no arguments: it offers these, and the tool takes what it names.
    offered: frozenset[str] = frozenset()


Need: TypeAlias = AgentNeed | CommandNeed | ToolNeed


class Requirements(NamedTuple):
    """All that a document needs, in the order in which it is written."""

    doers: tuple[AgentNeed | CommandNeed, ...] = ()
    #: Conversations that continue in another folder.
    moves: tuple[FolderChange, ...] = ()
    tools: tuple[ToolNeed, ...] = ()

    @property
    def keeps_conversations(self) -> bool:
        """Whether a loop of the document continues a conversation between its iterations."""
        return any(isinstance(one, AgentNeed) and one.conversation_field for one in self.doers)

    @property
    def agent_names(self) -> set[str]:
        """Returns the names of the agents that the document uses, without the default agent."""
        needs = [one for one in self.doers if isinstance(one, AgentNeed)]
        return {one.agent for one in needs if one.agent is not None}

    @property
    def tool_names(self) -> set[str]:
        """Returns the names of the tools that the document calls."""
        return {one.tool for one in self.tools}


def requirements_of(document: AnyDocument) -> Requirements:
    """Lists the agents, commands, tools and changes of folder in a document and its subflows."""
    if isinstance(document, FlowDocument):
        return _of_flow(document)
    if isinstance(document, PlanDocument):
        return _requirements(_of_plan(document))
    if isinstance(document, GraphDocument):
        return _requirements(chain(_of_called_sessions(document), _of_graph(document)))
    return _requirements(_of_loops(document))


def _requirements(needs: Iterable[Need], moves: Iterable[FolderChange] = ()) -> Requirements:
    doers, tools = list[AgentNeed | CommandNeed](), list[ToolNeed]()
    for need in needs:
        if isinstance(need, ToolNeed):
            tools.append(need)
        else:
            doers.append(need)
    return Requirements(tuple(doers), tuple(moves), tuple(tools))


def _of_graph(document: GraphDocument) -> Iterator[ToolNeed]:
    for number, step in enumerate(document.steps):
        if step.tool is None or shape_of(step.tool) == "flow" or is_local_tool(step.tool):
            continue  # no worker has it: a child session runs at any place, the submitter elsewhere
        known = {one.name: one.value for one in known_arguments(document, step)}
        yield ToolNeed(f"steps[{number}]", step.tool, step.arguments, known)


def _of_called_sessions(document: GraphDocument) -> Iterator[Need]:
    for number, step in enumerate(document.steps):
        for need in _of_loops(step.session) if step.session is not None else ():
            path = f"steps[{number}].session."
            if isinstance(need, CommandNeed):
                yield need._replace(field=f"{path}{need.field}")
                continue
            if isinstance(need, ToolNeed):
                yield need._replace(path=f"{path}{need.path}")
                continue
            continues = need.conversation_field
            yield need._replace(
                field=f"{path}{need.field}",
                model_field=f"{path}{need.model_field}",
                unnamed_field=f"{path}{need.unnamed_field}",
                conversation_field=continues and f"{path}{continues}",
            )


def _of_plan(document: PlanDocument) -> Iterator[Need]:
    if document.tasks is None:
        yield _named("agent", document.agent, document.model)
    name = document.doer.agent if document.doer is not None else None
    tasks = document.tasks or ()
    is_needed = not tasks or any(task.agent is None for task in tasks)
    if is_needed and (document.doer is None or name is not None):
        yield _named("doer" if name is None else "doer.agent", name, None, hint=_NO_DOER)
    for number, task in enumerate(tasks):
        if task.agent is not None:
            yield _named(f"tasks[{number}].agent", task.agent, task.model)
    for number, checker in enumerate(document.checkers):
        yield from _of_plan_checker(f"checkers[{number}]", checker, name)


def _of_plan_checker(field: str, checker: Checker, doer: str | None) -> Iterator[Need]:
    if checker.prompt is not None or (checker.rubric is not None and checker.agent is not None):
        yield _named(f"{field}.agent", checker.agent or doer, checker.model)
    yield from _of_program(field, checker)


def _of_program(field: str, checker: Checker) -> Iterator[CommandNeed | ToolNeed]:
    if checker.command is not None:
        yield CommandNeed(field, checker.command)
    if checker.tool is not None:
        yield ToolNeed(field, checker.tool, {}, offered=CHECKER_CONTEXT)


def _named(
    field: str, agent: str | None, model: str | None, *, hint: str = _NO_DEFAULT
) -> AgentNeed:
    model_field = f"{field.rpartition('.')[0]}.model".lstrip(".")
    return AgentNeed(
        field, agent, model, model_field=model_field, unnamed_field=field, unnamed_hint=hint
    )


def _of_flow(document: FlowDocument) -> Requirements:
    needs, moves = list[Need](), list[FolderChange]()
    for path, flow in parts_of(document):
        steps = list(steps_of(flow))
        moves += folder_changes(path, flow, steps)
        for one in steps:
            needs += _of_flow_step(path, flow, one)
    return _requirements(needs, moves)


def _of_flow_step(path: str, flow: FlowDefinition, one: Placed) -> Iterator[Need]:
    if isinstance(one.step, ToolStep):
        yield ToolNeed(f"{path}{one.path}", one.step.tool, one.step.arguments)
    type_, model = getattr(one.step, "agent_type", None), getattr(one.step, "model", None)
    if type_ is not None:
        yield _of_step(f"{path}{one.path}", "agentType", agent_of(flow, type_), model)
    checker = one.step.checker if isinstance(one.step, CheckStep) else None
    # Whether a rubric asks an agent depends on its file, which may change until it is read.
    if checker is not None and (checker.agent or checker.prompt is not None):
        agent = agent_of(flow, checker.agent) if checker.agent else None
        yield _of_step(f"{path}{one.path}.checker", "agent", agent, checker.model)
    if checker is not None and checker.tool is not None:
        yield ToolNeed(f"{path}{one.path}.checker", checker.tool, {}, offered=CHECKER_CONTEXT)


def _of_step(path: str, by: str, agent: str | None, model: str | None) -> AgentNeed:
    field = f"{path}.{by}"
    return AgentNeed(
        field,
        agent,
        model,
        model_field=f"{path}.model",
        unnamed_field=field,
        other_way=_MAP_IT if agent is not None else "",
    )


def _of_loops(document: LoopDocument | WorkflowDocument) -> Iterator[Need]:
    for where, loop in _loops(document):
        doer = loop.doer or document.doer
        name = doer.agent if doer is not None else None
        if doer is None or name is not None:
            yield AgentNeed(
                f"{where}doer.agent" if doer is not None else f"{where}doer",
                name,
                loop.model or document.model,
                model_field=f"{where}model",
                unnamed_field=f"{where}doer",
                unnamed_hint=_NO_DOER,
                conversation_field=f"{where}conversation" if _continues(loop) else "",
            )
        for number, checker in enumerate(loop.checkers):
            yield from _of_checker(f"{where}checkers[{number}]", where, checker, loop, name)


def _continues(loop: LoopDocument | PhaseDocument) -> bool:
    return loop.conversation == "continue"


def _of_checker(
    field: str, where: str, checker: Checker, loop: LoopDocument | PhaseDocument, doer: str | None
) -> Iterator[Need]:
    # Whether a rubric asks an agent depends on its file, which may change until it is read.
    if checker.prompt is not None or (checker.rubric is not None and checker.agent is not None):
        yield AgentNeed(
            f"{field}.agent" if checker.agent else field,
            checker.agent or doer,
            checker.model or loop.checker_model,
            model_field=f"{field}.model" if checker.model else f"{where}checker_model",
            unnamed_field=f"{field}.agent",
        )
    yield from _of_program(field, checker)


def _loops(
    document: LoopDocument | WorkflowDocument,
) -> Iterator[tuple[str, LoopDocument | PhaseDocument]]:
    if isinstance(document, LoopDocument):
        yield "", document
    else:
        for number, phase in enumerate(document.phases):
            yield f"phases[{number}].", phase
