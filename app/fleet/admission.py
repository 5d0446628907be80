"""Checks a document against the workers' inventories at submit, before any step is queued.

What the workers offer, the place that a session gets, and each error of a document that they could
not run.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pydantic import JsonValue

from app.compiler.requirements import (
    AgentNeed,
    CommandNeed,
    Requirements,
    ToolNeed,
    requirements_of,
)
from app.core.program import Action, Program, Step, checker_tool
from app.errors import InvalidDocument, SeveralInvalid
from app.fleet.inventory import program_of, summarize, why_no_folder, why_no_program
from app.security.egress import PORTS, destination, refusal
from app.settings import Settings
from leadhand.flows.documents import AnyDocument, FlowDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import Webhook
from leadhand.models.tool_schemas import (
    AGENT,
    BUILT_IN_TOOLS,
    TOOLS_FILE,
    is_internal,
    is_local_tool,
    misfits,
    owner_of,
    parameters_of,
    shape_of,
)
from leadhand.models.views.fleet import AgentHere, AgentView, ToolHere, ToolView, WorkerView

#: Facts about a tool that are not the same for all workers.
_OF_ONE_WORKER = {"why_not", "lacks", "program", "needs_env"}
#: Tools that every worker has.
BUILT_IN = (
    ToolHere(name="echo", kind="built-in", about="Returns its arguments.", takes_any=True),
    ToolHere(name="noop", kind="built-in", about="Returns nothing.", takes_any=True),
)


class Where(NamedTuple):
    """The place that a session is bound to, and its folder there."""

    place: str
    folder: str
    #: The folder that it was submitted from: lists find the session there and in those above.
    listed_in: str


class ProgramLookup(NamedTuple):
    """Where the programs of checker commands can be looked up."""

    folder: Path
    #: The PATHs of the workers; None in the set is this process' own PATH. None instead of a set
    #: means that the workers are on other machines.
    paths: frozenset[str | None] | None


def admit(document: AnyDocument, settings: Settings, workers: Sequence[WorkerView]) -> Where:
    """Returns place (worker host) and folder for a session. Raises InvalidDocument if none fit."""
    needs, faults = requirements_of(document), list[InvalidDocument]()
    place, here, folder = "", [*workers], None
    try:
        place, here, folder = _resolve_place(document, needs, settings, workers)
    except InvalidDocument as error:
        faults.append(error)
    lookup = ProgramLookup(folder, _search_paths(here, settings)) if folder else None
    faults += _faults(needs, place, here, workers, lookup)
    if faults:
        raise SeveralInvalid(faults)
    where = str(folder or document.cwd or "")
    return Where(place, where, where)


def faults_here(
    document: AnyDocument, settings: Settings, workers: Sequence[WorkerView]
) -> Iterator[InvalidDocument]:
    """Yields an InvalidDocument for each reason why the live workers could not run a document."""
    needs = requirements_of(document)
    try:
        place, here, _ = _resolve_place(document, needs, settings, workers)
    except InvalidDocument as error:
        yield error
        place, here = "", [*workers]
    yield from _faults(needs, place, here, workers, None)


def _resolve_place(
    document: AnyDocument,
    needs: Requirements,
    settings: Settings,
    workers: Sequence[WorkerView],
) -> tuple[str, list[WorkerView], Path | None]:
    """The place, its workers, and the resolved folder if it is visible to this process."""
    if document.webhook is not None:
        admit_webhook(document.webhook, settings)
    place = choose_place(document, needs, settings, workers)
    here = [worker for worker in workers if place in ("", worker.place)]
    if workers and not here:
        known = ", ".join(sorted({worker.place for worker in workers}))
        raise InvalidDocument("place", place, f"no worker is at this place; workers are at {known}")
    folder = _folder(document.cwd, settings, local=place == settings.place)
    check_roots(document.cwd, place, here, str(settings.worktrees_root))
    return place, here, folder


def _faults(
    needs: Requirements,
    place: str,
    here: Sequence[WorkerView],
    workers: Sequence[WorkerView],
    lookup: ProgramLookup | None,
) -> Iterator[InvalidDocument]:
    agents = AgentsThere(here)
    for one in needs.doers:
        try:
            if isinstance(one, AgentNeed):
                _check_agent(one, agents)
            elif lookup is not None:
                _check_command(one, lookup)
        except InvalidDocument as error:
            yield error
    yield from _faults_of_moves(needs, agents)
    yield from _faults_of_tools(needs, place, ToolsThere(here, workers))


def _check_agent(one: AgentNeed, agents: AgentsThere) -> None:
    """Raises InvalidDocument unless a worker of the place can run the agent."""
    name = one.agent or agents.default()
    if name is None:
        if agents.known:
            raise InvalidDocument(one.unnamed_field, None, one.unnamed_hint)
        return
    try:
        agents.check(one.field, name, model_field=one.model_field, model=one.model)
    except InvalidDocument as error:
        if error.field != one.field:
            raise
        raise InvalidDocument(error.field, error.value, f"{error.hint}{one.other_way}") from None
    if one.conversation_field and not agents.can_resume(name):
        hint = (
            f"agent {name!r} cannot continue a conversation; write thread and resume_args for it in"
            " agents.toml, or leave conversation out"
        )
        raise InvalidDocument(one.conversation_field, "continue", hint)


def _faults_of_moves(needs: Requirements, agents: AgentsThere) -> Iterator[InvalidDocument]:
    for one in needs.moves:
        if agents.resumes_in_same_folder_only(one.agent):
            hint = (
                f"agent {one.agent!r} finds a conversation only in the folder where it began, and"
                f" {one.identifier!r} began in {one.began_in!r} at {one.began};"
                " give this step another identifier or that folder, or reset the conversation"
            )
            yield InvalidDocument(f"{one.path}.working_folder", one.folder, hint)


def _faults_of_tools(
    needs: Requirements, place: str, tools: ToolsThere
) -> Iterator[InvalidDocument]:
    faults = [fault for one in needs.tools for fault in tools.faults(one)]
    yield from faults
    used = needs.tool_names
    if not faults and not place and not tools.everywhere(used) and not tools.places_with(used):
        hint = "no one place has all of these tools, and one session works at one; put them there"
        yield InvalidDocument("steps", ", ".join(sorted(used)), hint)


def admit_webhook(webhook: Webhook, settings: Settings) -> None:
    """Raises InvalidDocument if the egress rules forbid the URL of the webhook."""
    to = destination(webhook.url)
    why = refusal(to, settings.webhook_hosts)
    if why is not None:
        ports = " or ".join(map(str, PORTS))
        hint = f"{why}; give https to a public address at port {ports}, or let the operator name"
        shown = f"{to.scheme}://{to.authority}"  # the path and query may contain a secret
        raise InvalidDocument("webhook.url", shown, f"{hint} the host in LEADHAND_WEBHOOK_HOSTS")


def _folder(cwd: str | None, settings: Settings, *, local: bool) -> Path | None:
    """The resolved working folder; None if it is on another machine or not readable."""
    if cwd is None or not local:
        return None
    folder = Path(cwd)
    try:
        fault = why_no_folder(folder)
    except PermissionError:
        return None  # its workers will report whether it exists
    if fault:
        raise InvalidDocument("cwd", cwd, fault)
    real = folder.resolve()
    allowed = (*settings.roots, settings.worktrees_root)
    if settings.roots and not any(real.is_relative_to(one.resolve()) for one in allowed):
        roots = ", ".join(str(root) for root in settings.roots)
        raise InvalidDocument("cwd", cwd, f"working folders must lie beneath {roots}")
    return real


def _check_command(one: CommandNeed, lookup: ProgramLookup) -> None:
    """Raises InvalidDocument unless the command's program is found."""
    program = program_of(one.command)
    fault = _why_not_found(program, lookup) if program is not None else ""
    if fault:
        raise InvalidDocument(one.field, one.command, fault)


def _why_not_found(program: str, lookup: ProgramLookup) -> str:
    if "/" in program:
        fault = why_no_program(lookup.folder / program)
        return fault and f"{program!r}: {fault}"
    if lookup.paths is None or any(shutil.which(program, path=p) for p in lookup.paths):
        return ""
    found = (shutil.which(program, os.F_OK, path) for path in lookup.paths)
    there = next(filter(None, found), None)
    fault = why_no_program(Path(there)) if there else "it is not found; install it or give its path"
    return f"{there or program!r}: {fault}"


def _search_paths(here: Sequence[WorkerView], settings: Settings) -> frozenset[str | None] | None:
    """The PATHs of the workers if they are on this machine, else None.

    An embedded API whose worker has not reported yet uses its own PATH, which is the same.
    """
    if not here:
        return frozenset({None}) if settings.supervisor_pid else None
    if any(worker.host != socket.gethostname() or worker.path is None for worker in here):
        return None
    return frozenset(worker.path for worker in here)


def check_roots(
    cwd: str | None, place: str, here: Sequence[WorkerView], worktrees: str | None = None
) -> None:
    """Raises InvalidDocument if a folder is outside the roots of all workers; passes without roots.

    Folders in `worktrees` are allowed everywhere: workers make them for sessions.
    """
    rooted = [worker for worker in here if worker.roots]
    if cwd is None or not rooted or len(rooted) < len(here):
        return
    if worktrees is not None and _below(cwd, worktrees):
        return
    if not any(_below(cwd, root) for worker in rooted for root in worker.roots):
        roots = ", ".join(sorted({root for worker in rooted for root in worker.roots}))
        raise InvalidDocument("cwd", cwd, f"at {place!r} working folders must lie beneath {roots}")


def other_home(
    place: str,
    cwd: str,
    workers: Sequence[WorkerView],
    *,
    agents: Collection[str],
    tools: Collection[str] = (),
) -> str | None:
    """Returns the one other place (worker host) that can take over a session left without workers.

    It must have the folder, the agents and the tools. None if there is no such place or several, or
    if the session's own place has a worker.
    """
    if any(worker.place == place for worker in workers):
        return None
    holding = {w.place for w in workers if any(_below(cwd, root) for root in w.roots)}
    there, shelves = AgentsThere(workers), ToolsThere(workers)
    able = [
        one for one in holding if there.usable_at(one, agents) and shelves.usable_at(one, tools)
    ]
    return able[0] if len(able) == 1 else None


def choose_place(
    document: AnyDocument,
    needs: Requirements,
    settings: Settings,
    workers: Sequence[WorkerView],
) -> str:
    """Returns a new session's place (worker host): the named one, one with its folder, or ''.

    This API's own place is preferred. A session without a folder gets the empty name (any place),
    unless its agents store conversations on their host.
    """
    cwd = document.cwd
    if document.place is not None:
        return document.place
    if cwd is None:
        is_kept = isinstance(document, FlowDocument | GraphDocument) or needs.keeps_conversations
        return _home_of(needs, settings, workers) if is_kept else ""
    return _place_of(cwd, settings, workers)


def _home_of(needs: Requirements, settings: Settings, workers: Sequence[WorkerView]) -> str:
    """A place that has all agents and tools, preferably this API's own; "" for any place."""
    agents, tools = AgentsThere(workers), ToolsThere(workers)
    names, used = needs.agent_names, needs.tool_names
    default = agents.default()
    if needs.keeps_conversations and default is not None:
        names = names | {default}
    if not agents.any_stores_conversations(names) and tools.everywhere(used):
        return ""
    able = [place for place in tools.places_with(used) if agents.usable_at(place, names)]
    if not able:
        return settings.place if agents.any_stores_conversations(names) else ""
    return settings.place if settings.place in able else able[0]


def _place_of(cwd: str, settings: Settings, workers: Sequence[WorkerView]) -> str:
    """A place whose workers may use the folder. Workers without roots may use any folder."""
    rooted = {w.place for w in workers if any(_below(cwd, root) for root in w.roots)}
    holding = rooted | {w.place for w in workers if not w.roots}
    if not holding:
        staffed = {w.place for w in workers}
        return settings.place if settings.place in staffed or not staffed else min(staffed)
    others = holding - {settings.place}
    if settings.place in holding and (not others or _may_be_here(cwd)):
        return settings.place
    return min(others & rooted or others)


def _may_be_here(cwd: str) -> bool:
    """Whether a folder may exist on this machine; true if it cannot be read."""
    try:
        return Path(cwd).is_dir()
    except PermissionError:
        return True


def _below(cwd: str, root: str) -> bool:
    return PurePosixPath(os.path.normpath(cwd)).is_relative_to(os.path.normpath(root))


def agents_of(workers: Sequence[WorkerView]) -> list[AgentView]:
    """Lists the agents of all workers: where each can be used, and why not elsewhere."""
    names = sorted({agent.name for worker in workers for agent in worker.agents_here})
    return [_agent_view(name, workers) for name in names]


def _agent_view(name: str, workers: Sequence[WorkerView]) -> AgentView:
    found = [(w.place, a) for w in workers for a in w.agents_here if a.name == name]
    first, at, why_not = summarize(found)
    return AgentView(
        **first.model_dump(exclude={"why_not", "lacks", "program"}),
        default=any(worker.default_agent == name for worker in workers),
        usable_at=at,
        why_not=dict(why_not),
    )


class AgentsThere:
    """The agents of some workers. Without any worker, every check passes."""

    def __init__(self, workers: Sequence[WorkerView]) -> None:
        self._workers = workers
        self.known = bool(workers)
        self._known = {agent for worker in workers for agent in worker.agents}

    def check(
        self, field: str, name: str, *, model_field: str = "", model: str | None = None
    ) -> None:
        """Raises InvalidDocument if no worker can run the agent and model; passes if no workers."""
        if not self._workers:
            return
        if name not in self._known:
            known = ", ".join(sorted(self._known)) or "none"
            hint = f"no worker knows this agent; known: {known}. Add it to agents.toml"
            raise InvalidDocument(field, name, "; ".join([hint, *self._broken_files()]))
        here, usable = self._reports_of(name), self._usable(name)
        if here and not usable:
            raise InvalidDocument(field, name, f"it cannot be used: {here[0].why_not}")
        if model is not None and usable and not any(agent.takes_model for agent in usable):
            hint = f"agent {name!r} takes no model; write model_args for it in agents.toml"
            raise InvalidDocument(model_field, model, f"{hint}, or name no model")

    def default(self) -> str | None:
        """Return the default agent's name, of the first worker that has one; None if none has."""
        named = [worker.default_agent for worker in self._workers if worker.default_agent]
        return named[0] if named else None

    def resumes_in_same_folder_only(self, name: str) -> bool:
        """Whether the agent can resume a conversation only in the folder where it began."""
        return any(agent.keeps_to_folder for agent in self._usable(name))

    def can_resume(self, name: str) -> bool:
        """Whether any usable agent of this name resumes conversations; true if none is usable."""
        here = self._usable(name)
        return not here or any(agent.remembers for agent in here)

    def can_fork(self, name: str) -> bool:
        """Whether all usable agents of this name can copy a conversation; False without any."""
        here = self._usable(name)
        return bool(here) and all(agent.forks for agent in here)

    def any_stores_conversations(self, names: Collection[str]) -> bool:
        """Whether any of the agents stores its conversations on its host."""
        agents = [agent for name in names for agent in self._reports_of(name)]
        return any(agent.remembers and agent.kind == "command" for agent in agents)

    def usable_at(self, place: str, names: Collection[str]) -> bool:
        """Whether each of the named agents is usable on a worker at the place (worker host)."""
        here = [a for w in self._workers if w.place == place for a in w.agents_here]
        return set(names) <= {agent.name for agent in here if agent.why_not is None}

    def _broken_files(self) -> list[str]:
        """Errors of whole agents files, in which the agent may be defined."""
        faults = (fault for worker in self._workers for fault in worker.agents_faults)
        return list(dict.fromkeys(fault.text for fault in faults if fault.agent is None))

    def _usable(self, name: str) -> list[AgentHere]:
        return [agent for agent in self._reports_of(name) if agent.why_not is None]

    def _reports_of(self, name: str) -> list[AgentHere]:
        """Each worker's report on the agent; empty if all workers are too old to send reports."""
        return [agent for w in self._workers for agent in w.agents_here if agent.name == name]


def tools_of(workers: Sequence[WorkerView]) -> list[ToolView]:
    """Lists the tools of all workers: where each can be used, and why not elsewhere."""
    reports = [(w.place, tool) for w in workers for tool in (*BUILT_IN, *tools_at(w))]
    return [_tool_view(name, reports) for name in sorted({tool.name for _, tool in reports})]


def tools_at(worker: WorkerView) -> list[ToolHere]:
    """Returns the tools of a worker, including its agents as tools."""
    return [*worker.tools_here, *map(_agent_tool, worker.agents_here)]


def _agent_tool(agent: AgentHere) -> ToolHere:
    properties: dict[str, JsonValue] = {"prompt": {"type": "string"}}
    if agent.takes_model:
        properties["model"] = {"type": "string"}
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": properties,
        "required": ["prompt"],
        "additionalProperties": False,
    }
    return ToolHere(
        name=f"{AGENT}{agent.name}",
        kind="agent",
        about=f"Asks the agent {agent.name}.",
        parameters=parameters_of(schema),
        input_schema=schema,
        why_not=agent.why_not,
    )


def tools_in(program: Program) -> set[str]:
    """Returns the names of the tools that a program's steps use, except built-in and local ones."""
    steps = [node for _, node in program.walk() if isinstance(node, Step)]
    used = {str(step.inputs.get("tool")) for step in steps if step.action is Action.TOOL}
    used |= {tool for step in steps if (tool := checker_tool(step)) is not None}
    used -= BUILT_IN_TOOLS
    return {name for name in used if not is_internal(name) and not is_local_tool(name)}


def _tool_view(name: str, reports: Sequence[tuple[str, ToolHere]]) -> ToolView:
    first, at, why_not = summarize([(place, tool) for place, tool in reports if tool.name == name])
    return ToolView(**first.model_dump(exclude=_OF_ONE_WORKER), usable_at=at, why_not=dict(why_not))


class ToolsThere:
    """The tools of some workers. Without any worker, every check passes."""

    def __init__(
        self, workers: Sequence[WorkerView], everywhere: Sequence[WorkerView] = ()
    ) -> None:
        self._workers = workers
        self._everywhere = everywhere or workers

    def faults(self, wanted: ToolNeed) -> Iterator[InvalidDocument]:
        """Yield the errors if no worker can run the tool with these arguments."""
        if not self._workers or wanted.tool in BUILT_IN_TOOLS:
            return
        usable = self._usable(wanted.tool)
        if not usable:
            hint = self._why_unknown(wanted.tool)
            yield InvalidDocument(f"{wanted.path}.tool", wanted.tool, hint)
            return
        fewest = min((list(_misfits(tool, wanted)) for tool in usable), key=len)
        for name, hint in fewest:
            if wanted.offered:
                yield InvalidDocument(f"{wanted.path}.tool", wanted.tool, hint)
                continue
            field = f"{wanted.path}.arguments.{name}"
            yield InvalidDocument(field, wanted.arguments.get(name), hint)

    def places_with(self, names: Collection[str]) -> list[str]:
        """Return the names of the places (worker hosts) where all of these tools are usable."""
        return sorted({w.place for w in self._workers if self.usable_at(w.place, names)})

    def everywhere(self, names: Collection[str]) -> bool:
        """Whether every worker has all of these tools."""
        return all(set(names) - BUILT_IN_TOOLS <= _names(worker) for worker in self._workers)

    def usable_at(self, place: str, names: Collection[str]) -> bool:
        """Whether each of the tools is usable on a worker at the place (worker host)."""
        here = (worker for worker in self._workers if worker.place == place)
        return set(names) - BUILT_IN_TOOLS <= set().union(*map(_names, here))

    def _usable(self, name: str) -> list[ToolHere]:
        found = (tool for worker in self._workers for tool in tools_at(worker))
        return [tool for tool in found if tool.name == name and tool.why_not is None]

    def _why_unknown(self, name: str) -> str:
        broken = {tool.name: tool.why_not for worker in self._workers for tool in tools_at(worker)}
        why = broken.get(name) or broken.get(owner_of(name))
        if why is not None:
            is_file = shape_of(name) == "function"
            return f"its file cannot be used: {why}" if is_file else f"it cannot be used: {why}"
        elsewhere = sorted({w.place for w in self._everywhere if name in _names(w)})
        if elsewhere:
            return f"no worker there has this tool; it is at {', '.join(elsewhere)}. Run it there"
        known = ", ".join(sorted(BUILT_IN_TOOLS.union(*map(_names, self._workers))))
        unread = "".join(f"; {why}" for name, why in broken.items() if name == TOOLS_FILE)
        where = (
            "Put it into a folder of LEADHAND_TOOLS"
            if shape_of(name) == "function"
            else "Add it to agents.toml"
            if shape_of(name) == "agent"
            else "Write it into tools.toml, beside agents.toml"
        )
        return f"no worker has this tool; known: {known}. {where}{unread}"


def _names(worker: WorkerView) -> set[str]:
    return {tool.name for tool in tools_at(worker) if tool.why_not is None}


def _misfits(tool: ToolHere, wanted: ToolNeed) -> Iterator[tuple[str, str]]:
    """Yields the unknown, unfit and missing arguments, each with the error text."""
    known = [parameter.name for parameter in tool.parameters]
    for name in wanted.arguments:
        if name not in known and not tool.takes_any:
            names = ", ".join(known) or "none"
            yield name, f"tool {tool.name!r} has no such argument; it has: {names}"
    yield from misfits(tool.name, tool.input_schema, wanted.known)
    given = wanted.offered or wanted.arguments
    for name in (one.name for one in tool.parameters if one.required and one.name not in given):
        if not wanted.offered:
            yield name, f"tool {tool.name!r} requires this argument; add it"
            continue
        gives = ", ".join(sorted(wanted.offered))
        hint = f"it requires {name!r}, and a checker gives only: {gives}; give {name!r} a default"
        yield name, hint
