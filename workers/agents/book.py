"""The agents that this worker can start: those of agents.toml, and ready-made ones."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from leadhand.patterns import form_of
from workers.agents.entries import Agent, ChatModel, Entry, Name, Prices, Told
from workers.agents.errors import AgentsFileInvalid, AgentUnknown
from workers.agents.ready_made import READY_MADE

_SECRET = re.compile(r"(?i)key|token|secret|passw|credential|auth")


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: dict[Name, Agent] = {}


class AgentBook(BaseModel):
    """All agents of a worker by name."""

    model_config = ConfigDict(frozen=True)

    agents: dict[str, Agent] = dict(READY_MADE)

    @classmethod
    def load(cls, files: Sequence[Path]) -> AgentBook:
        """Read the files, a later one's entry in place of an earlier one's of the same name.

        Raises AgentsFileInvalid naming the file, the key, its value and the way out.
        """
        agents = dict(READY_MADE)
        for file in files:
            agents.update(_read(file).agents)
        return cls(agents=agents)

    @cached_property
    def secret_names(self) -> frozenset[str]:
        """The variables that hold secrets: what an agent needs, and what is called like one."""
        agents = self.agents.values()
        named = {name for agent in agents for name in agent.env if _SECRET.search(name)}
        return frozenset(named | {name for agent in agents for name in agent.needed})

    def agent(self, name: str) -> Agent:
        """The agent of that name. Raises AgentUnknown naming those that are."""
        if name not in self.agents:
            raise AgentUnknown(name, tuple(sorted(self.agents)))
        return self.agents[name]


def _read(file: Path) -> _File:
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        hint = f"cannot be read: {error.strerror}; mend the path in LEADHAND_AGENTS"
        raise AgentsFileInvalid(str(file), "", None, hint) from error
    except ValueError as error:
        raise AgentsFileInvalid(str(file), "", None, f"is not TOML: {error}") from error
    try:
        return _File.model_validate(raw)
    except ValidationError as error:
        raise _first_of(error, file) from None


_HINTS: Mapping[str, str] = {
    "model_type": 'write a table: model = {name = "..."}',
    "model_attributes_type": 'write a table: model = {name = "..."}',
    "tuple_type": 'write a list: ["program", "argument"]',
    "too_short": 'write a program and its arguments: ["program", "argument"]',
}
_PATH = "write FIELD.FIELD, or [FIELD=VALUE].FIELD for lines that have that value there"
_PATTERNS: Mapping[str, str] = {
    **dict.fromkeys(("answer", "failed", "busy", "final", "thread", *Told.model_fields), _PATH),
    "callable": 'write "module:function"',
    "base_url": 'write where the model is, such as "https://models.example/v1"',
    "key_env": "write the name of a variable; the key itself stands in the worker's environment",
}
_TABLES: Mapping[str, type[Entry]] = {
    "model": ChatModel,
    "usage": Told,
    "running": Told,
    "prices": Prices,
}


def _first_of(error: ValidationError, file: Path) -> AgentsFileInvalid:
    first = error.errors(include_url=False)[0]
    place = [str(part) for part in first["loc"] if part != "[key]"]
    value = first["input"]
    # Of a whole table only the name is worth telling.
    shown = None if first["type"] == "missing" or isinstance(value, dict) else value
    return AgentsFileInvalid(str(file), ".".join(place), shown, _hint(first, place))


def _hint(first: ErrorDetails, place: Sequence[str]) -> str:
    kind = first["type"]
    if kind == "extra_forbidden" and len(place) == 1:
        return "write it as [agents.NAME]"
    if kind == "extra_forbidden":
        keys = _TABLES.get(place[2], Agent).model_fields if len(place) > 3 else Agent.model_fields
        return f"is not a key here; use {', '.join(keys)}"
    if kind == "string_pattern_mismatch":
        known = [_PATTERNS[key] for key in place[2:] if key in _PATTERNS]
        form = form_of(first["ctx"]["pattern"])
        told = f"write {form}" if form is not None else str(first["msg"])
        return known[0] if known else told
    if kind == "missing":
        return f"is missing in [{'.'.join(place[:-1])}]; write it too"
    return _HINTS.get(kind, first["msg"].removeprefix("Value error, "))
