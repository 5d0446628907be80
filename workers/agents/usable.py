"""Whether an agent can be used on this host, and if not, why and what to do about it."""

from __future__ import annotations

import importlib.util
import shutil

from app.redaction import redacted_command
from app.texts import cut
from app.views import AgentHere
from workers import environment
from workers.agents.book import AgentBook
from workers.agents.entries import Agent

#: Characters of a command that others are shown.
_SHOWN = 200


def why_unusable(agent: Agent) -> str | None:
    """What stands in the way here; None where nothing is known to."""
    return _program_missing(agent) or missing_here(agent)


def agents_here(book: AgentBook) -> tuple[AgentHere, ...]:
    """What this host tells others of its agents, by name."""
    return tuple(_here(name, agent) for name, agent in sorted(book.agents.items()))


def _here(name: str, agent: Agent) -> AgentHere:
    return AgentHere(
        name=name,
        kind=agent.kind,
        command=cut(redacted_command(agent.shown), _SHOWN),
        takes_model=agent.takes_model,
        remembers=agent.remembers,
        keeps_to_folder=agent.keeps_to_folder,
        why_not=why_unusable(agent),
    )


def missing_here(agent: Agent) -> str | None:
    """A variable or package that it cannot work without; None where all are here."""
    held = environment.inherited()
    for name in agent.needed:
        if not held.get(name):
            return f"the variable {name} is not set; set it where the worker is started"
    if agent.model is not None and importlib.util.find_spec("openai") is None:
        return "the openai package is not there; install leadhand[openai]"
    return None


def _program_missing(agent: Agent) -> str | None:
    """A path is not looked for: it may be one in the working folder."""
    program = agent.command[0] if agent.command else ""
    if not program or "/" in program:
        return None
    if shutil.which(program, path=environment.inherited().get("PATH")) is not None:
        return None
    hint = "install it on the worker's PATH, or set its command in agents.toml"
    return f"the program {program!r} is not found; {hint}"
