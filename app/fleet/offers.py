"""The agents and tools that workers report, and checks of documents against them (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pydantic import JsonValue

from app.compiler.requirements import ToolNeed
from app.core.program import Action, Program, Step, checker_tool
from app.errors import InvalidDocument
from app.fleet.inventory import summarize
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
        here = self._reports_of(name)
        usable = [agent for agent in here if agent.why_not is None]
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
        return any(
            agent.keeps_to_folder for agent in self._reports_of(name) if agent.why_not is None
        )

    def can_resume(self, name: str) -> bool:
        """Whether any usable agent of this name resumes conversations; true if none is usable."""
        here = [agent for agent in self._reports_of(name) if agent.why_not is None]
        return not here or any(agent.remembers for agent in here)

    def can_fork(self, name: str) -> bool:
        """Whether all usable agents of this name can copy a conversation; False without any."""
        here = [agent for agent in self._reports_of(name) if agent.why_not is None]
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
