"""Loads the agents of a worker: those of agents.toml and the built-in ones."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from app.fleet.inventory import why_no_program
from app.redaction import redact_command
from app.truncate import cut
from leadhand.models.approvals import LIMITED, NONE_NEEDED, Approvals
from leadhand.models.folder_settings import TomlUnreadable, line_of
from leadhand.models.patterns import form_of
from leadhand.models.suggestions import nearest
from leadhand.models.validation_messages import plain_message
from leadhand.models.views.fleet import AgentHere, AgentsFault
from workers.processes import environment
from workers.registry.agent_entry import (
    BUILTIN_AGENTS,
    ActivityPaths,
    Agent,
    ChatModel,
    Entry,
    Name,
    Prices,
    UsagePaths,
)
from workers.registry.errors import AgentsFileInvalid, AgentUnknown
from workers.registry.sources import ON_DISK, Sources

_HEADER = re.compile(r"""^[ \t]*\[agents\.(?:["']([^"'\n]+)["']|([\w-]+))[\].]""", re.MULTILINE)
SECRET = re.compile(r"(?i)key|token|secret|passw|credential|auth")
#: Characters of a command that the inventory shows.
_SHOWN = 200


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: dict[Name, Agent] = {}


class AgentBook(BaseModel):
    """All agents of a worker by name, and the errors in the files that define them."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    agents: dict[str, Agent] = dict(BUILTIN_AGENTS)
    #: The error of each invalid entry, by name. It replaces an earlier entry of this name.
    broken: dict[str, AgentsFileInvalid] = {}
    #: The errors of files that cannot be parsed.
    unread: tuple[AgentsFileInvalid, ...] = ()
    #: The last valid versions of entries that are now invalid; running sessions keep using them,
    #: unless their approval was withdrawn.
    kept: dict[str, Agent] = {}
    #: The names that the folder of the sessions defines, and not the operator.
    of_folder: frozenset[str] = frozenset()

    @classmethod
    def load(
        cls,
        files: Sequence[Path],
        before: AgentBook | None = None,
        approvals: Approvals = NONE_NEEDED,
        sources: Sources = ON_DISK,
    ) -> AgentBook:
        """Read agents.toml files over the built-in agents; later files replace earlier entries.

        A missing file has no entries. An error affects its entry only, or its file. So does a
        missing approval: an entry that would replace another one is an error without it.
        """
        agents, unread = dict(BUILTIN_AGENTS), list[AgentsFileInvalid]()
        broken: dict[str, AgentsFileInvalid] = {}
        of_folder, withdrawn = frozenset[str](), set[str]()
        for file in files:
            found = _read(file, sources)
            if approvals.lack(file, found.text):
                if approvals.is_withdrawn(file):
                    withdrawn |= _replacing({**found.agents, **found.broken}, agents, approvals)
                found = _without_replacements(found, agents, file, approvals)
            agents = {n: a for n, a in {**agents, **found.agents}.items() if n not in found.broken}
            broken = {n: f for n, f in {**broken, **found.broken}.items() if n not in found.agents}
            unread += found.faults
            of_folder |= found.agents.keys() if approvals.covers(file) else frozenset()
        known = {} if before is None else {**before.kept, **before.agents}
        lost = known.keys() - agents.keys() if unread else known.keys() & broken.keys()
        kept = {name: known[name] for name in lost - withdrawn}
        return cls(
            agents=agents, broken=broken, unread=tuple(unread), kept=kept, of_folder=of_folder
        )

    @cached_property
    def secret_names(self) -> frozenset[str]:
        """Return the names of agents' secret variables: needed ones, and those that look secret."""
        agents = [*self.agents.values(), *self.kept.values()]
        named = {name for agent in agents for name in agent.env if SECRET.search(name)}
        return frozenset(named | {name for agent in agents for name in agent.needed})

    @property
    def faults(self) -> tuple[AgentsFileInvalid, ...]:
        """Return all errors in the agents files."""
        return tuple(dict.fromkeys((*self.unread, *self.broken.values())))

    def agent(self, name: str) -> Agent:
        """Return an agent, or its last valid version. Raises AgentsFileInvalid, AgentUnknown."""
        found = self.agents.get(name) or self.kept.get(name)
        if found is not None:
            return found
        if name in self.broken:
            fault = self.broken[name]  # without its value, which may be a secret
            raise AgentsFileInvalid(fault.file, fault.key, None, fault.hint, fault.line)
        unread = tuple(fault.public for fault in self.unread)
        raise AgentUnknown(name, tuple(sorted(self.agents)), unread)


class _Entries(NamedTuple):
    """The entries of one file, and its errors."""

    agents: Mapping[str, Agent]
    broken: Mapping[str, AgentsFileInvalid]
    faults: Sequence[AgentsFileInvalid]
    text: str


def _without_replacements(
    found: _Entries, agents: Mapping[str, Agent], file: Path, approvals: Approvals
) -> _Entries:
    """The entries of a file that is not approved: those with the name of an agent are broken.

    With strict approvals, all are.
    """
    names = _replacing(found.agents, agents, approvals)
    what = "an agent has this name, and this file is not approved as it is"
    why = f"{f'this file {LIMITED}' if approvals.strict else what}; {approvals.hint}`"
    broken = {
        name: AgentsFileInvalid(
            str(file), f"agents.{name}", None, why, line_of(found.text, ["agents", name])
        )
        for name in names
    }
    kept = {name: agent for name, agent in found.agents.items() if name not in broken}
    return found._replace(agents=kept, broken={**found.broken, **broken})


def _replacing(
    names: Collection[str], agents: Mapping[str, Agent], approvals: Approvals
) -> set[str]:
    """The names that need an approval: those that an agent has, or all with strict approvals."""
    return set(names) if approvals.strict else set(names) & agents.keys()


def _read(file: Path, sources: Sources) -> _Entries:
    try:
        text, raw = sources.read(file)
    except TomlUnreadable as error:
        fault = AgentsFileInvalid(str(file), "", None, error.why, error.line)
        # Names that the file seems to define must not fall back to an entry of another file.
        names = {quoted or bare for quoted, bare in _HEADER.findall(error.text)}
        return _Entries({}, dict.fromkeys(names, fault), [fault], error.text)
    entries = raw.get("agents", {})
    named = entries if isinstance(entries, dict) else {}
    rest = {**raw, "agents": {} if named else entries}
    faults = [_fault(error, file, text) for error in _errors(rest)]
    agents, broken = dict[str, Agent](), dict[str, AgentsFileInvalid]()
    for name, entry in named.items():
        try:
            agents |= _File.model_validate({"agents": {name: _extended(name, entry)}}).agents
        except ValidationError as error:
            broken[name] = _fault(error.errors(include_url=False)[0], file, text)
    return _Entries(agents, broken, faults, text)


def _extended(name: str, entry: object) -> object:
    """An entry of a ready-made agent's name that starts nothing extends that agent."""
    ready = BUILTIN_AGENTS.get(name)
    starts = ("command", "model", "callable")
    if ready is None or not isinstance(entry, dict) or any(key in entry for key in starts):
        return entry
    fields = ready.model_dump(exclude_unset=True) | entry
    named = entry.get("env")
    if isinstance(named, list):
        fields["env"] = [*dict.fromkeys([*ready.env, *named])]
    return fields


def _errors(raw: Mapping[str, object]) -> Sequence[ErrorDetails]:
    try:
        _File.model_validate(raw)
    except ValidationError as error:
        return error.errors(include_url=False)
    return ()


_HINTS: Mapping[str, str] = {
    "model_type": 'write a table: model = {name = "..."}',
    "model_attributes_type": 'write a table: model = {name = "..."}',
    "tuple_type": 'write a list: ["program", "argument"]',
    "too_short": 'write a program and its arguments: ["program", "argument"]',
}
_PATH = "write FIELD.FIELD, or [FIELD=VALUE].FIELD for lines that have that value there"
_PATTERNS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "answer",
            "failed",
            "busy",
            "final",
            "thread",
            *UsagePaths.model_fields,
            *ActivityPaths.model_fields,
        ),
        _PATH,
    ),
    "callable": 'write "module:function"',
    "base_url": 'write where the model is, such as "https://models.example/v1"',
    "key_env": "write the name of a variable; the key itself is in the worker's environment",
}
_TABLES: Mapping[str, type[Entry]] = {
    "model": ChatModel,
    "usage": UsagePaths,
    "running": UsagePaths,
    "activity": ActivityPaths,
    "prices": Prices,
}


def _fault(first: ErrorDetails, file: Path, text: str) -> AgentsFileInvalid:
    place = [str(part) for part in first["loc"] if part != "[key]"]
    value = first["input"]
    # A table's value is too long to show.
    shown = None if first["type"] == "missing" or isinstance(value, dict) else value
    line = line_of(text, place)
    return AgentsFileInvalid(str(file), ".".join(place), shown, _hint(first, place), line)


def _hint(first: ErrorDetails, place: Sequence[str]) -> str:
    kind = first["type"]
    if kind.startswith("model_") and len(place) == 2:
        return f"write a table: [{'.'.join(place)}]"
    if kind == "extra_forbidden" and len(place) == 1:
        return "write it as [agents.NAME]"
    if kind == "extra_forbidden":
        keys = _TABLES.get(place[2], Agent).model_fields if len(place) > 3 else Agent.model_fields
        near = nearest(place[-1], keys)
        meant = f"; did you mean {near!r}?" if near is not None else ""
        return f"is not a key here; use {', '.join(keys)}{meant}"
    if kind == "string_pattern_mismatch":
        known = [_PATTERNS[key] for key in place[2:] if key in _PATTERNS]
        form = form_of(first["ctx"]["pattern"])
        general = f"write {form}" if form is not None else str(first["msg"])
        return known[0] if known else general
    if kind == "missing":
        return f"is missing in [{'.'.join(place[:-1])}]; write it too"
    return _HINTS.get(kind, plain_message(first["msg"].removeprefix("Value error, ")))


def why_unusable(agent: Agent) -> str | None:
    """Returns why the agent cannot run on this host, with the fix; None if it can."""
    held = environment.inherited()
    return _program_missing(agent, held) or missing_here(agent, held)


def agents_here(book: AgentBook) -> tuple[AgentHere, ...]:
    """Returns the agents of this host by name, including those with an invalid entry."""
    here = [_here(name, agent) for name, agent in book.agents.items()]
    here += [_broken(name, fault) for name, fault in book.broken.items()]
    return tuple(sorted(here, key=lambda one: one.name))


def faults_of(book: AgentBook) -> tuple[AgentsFault, ...]:
    """Returns the errors in the agents files of this host, for the inventory."""
    faults = [AgentsFault(text=fault.public) for fault in book.unread]
    for name, fault in sorted(book.broken.items()):
        if fault not in book.unread:
            faults.append(AgentsFault(text=fault.public, agent=cut(name, _SHOWN)))
    return tuple(faults)


def _broken(name: str, fault: AgentsFileInvalid) -> AgentHere:
    return AgentHere(name=cut(name, _SHOWN), kind="command", command="", why_not=fault.public)


def _here(name: str, agent: Agent) -> AgentHere:
    return AgentHere(
        name=name,
        kind=agent.kind,
        command=cut(redact_command(agent.shown), _SHOWN),
        takes_model=agent.takes_model,
        remembers=agent.remembers,
        forks=agent.forks,
        keeps_to_folder=agent.keeps_to_folder,
        knows_cost=agent.knows_cost,
        why_not=why_unusable(agent),
        lacks=_lacks(agent),
        program=_searched_program(agent),
        env=[*agent.variables],
        needs_env=[*agent.needed],
    )


def _lacks(agent: Agent) -> Literal["program", "variable"] | None:
    """What the worker's own environment lacks, and that of a session may have."""
    held = environment.inherited()
    if _program_missing(agent, held) is not None:
        return "program" if _searched_program(agent) is not None else None
    return "variable" if _variable_missing(agent, held) is not None else None


def missing_here(agent: Agent, held: Mapping[str, str]) -> str | None:
    """Returns which variable or package the agent lacks, with the fix; None if it has all.

    `held` is the environment that it would get its variables from.
    """
    missing = _variable_missing(agent, held)
    if missing is not None:
        return f"the variable {missing} is not set; pass it with --env, or set it for the worker"
    if agent.model is not None and importlib.util.find_spec("openai") is None:
        return "the openai package is not installed; install leadhand[openai]"
    return None


def _variable_missing(agent: Agent, held: Mapping[str, str]) -> str | None:
    return next((name for name in agent.needed if not held.get(name)), None)


def _searched_program(agent: Agent) -> str | None:
    """The program of the agent if it is searched on the PATH."""
    program = agent.command[0] if agent.command else ""
    return program if program and "/" not in program else None


def _program_missing(agent: Agent, held: Mapping[str, str]) -> str | None:
    """Why the program cannot be run; a relative path may be one in the working folder."""
    program = agent.command[0] if agent.command else ""
    if program.startswith("/"):
        fault = why_no_program(Path(program))
        return f"the program {program!r}: {fault}" if fault else None
    searched = _searched_program(agent)
    if searched is None or shutil.which(searched, path=held.get("PATH")) is not None:
        return None
    hint = "install it on the worker's PATH, or set its command in agents.toml"
    return f"the program {searched!r} is not found; {hint}"
