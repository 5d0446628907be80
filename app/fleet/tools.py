"""The tools that workers report, and checks of flows against them (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pydantic import JsonValue

from app.compiler.requirements import ToolNeed
from app.domain.program import Action, Program, Step, checker_tool
from app.errors import InvalidDocument
from app.fleet.inventory import summarize
from leadhand.models.tool_names import (
    AGENT,
    BUILT_IN_TOOLS,
    TOOLS_FILE,
    is_internal,
    is_local_tool,
    owner_of,
    shape_of,
)
from leadhand.models.tool_schemas import parameters_of
from leadhand.models.tool_values import misfits
from leadhand.models.views.fleet import AgentHere, ToolHere, ToolView, WorkerView

#: Facts about a tool that are not the same for all workers.
_OF_ONE_WORKER = {"why_not", "lacks", "program", "needs_env"}
#: Tools that every worker has.
BUILT_IN = (
    ToolHere(name="echo", kind="built-in", about="Returns its arguments.", takes_any=True),
    ToolHere(name="noop", kind="built-in", about="Returns nothing.", takes_any=True),
)


def tools_of(workers: Sequence[WorkerView]) -> list[ToolView]:
    """Lists the tools of all workers: where each can be used, and why not elsewhere."""
    reports = [(w.place, tool) for w in workers for tool in (*BUILT_IN, *tools_at(w))]
    return [_view(name, reports) for name in sorted({tool.name for _, tool in reports})]


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


def _view(name: str, reports: Sequence[tuple[str, ToolHere]]) -> ToolView:
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
