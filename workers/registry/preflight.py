"""Checks whether each agent can run on this host: its program, variables and packages."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from app.fleet.programs import why_no_program
from app.redaction import redact_command
from app.truncate import cut
from leadhand.models.views.fleet import AgentHere, AgentsFault
from workers.processes import environment
from workers.registry.agent_entry import Agent
from workers.registry.agents import AgentBook
from workers.registry.errors import AgentsFileInvalid

#: Characters of a command that the inventory shows.
_SHOWN = 200


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
