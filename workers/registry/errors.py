"""Errors of a worker's agents and tools.

LeadhandError
├── AgentsFileInvalid       an agents.toml has an invalid entry
│   └── ToolsFileInvalid    a tools.toml has an invalid entry
├── AgentUnknown            this worker has no agent of this name
├── AgentUnnamed            the step names no agent, and there is no default agent
├── AgentUnusable           a program, variable or package that the agent needs is missing
├── ModelUnwanted           the agent's entry has no model_args
├── PromptTooLong           the prompt is longer than a conversation can store
└── OutputUnreadable        the output does not have the format of the agent's entry
"""

from __future__ import annotations

from app.redaction import without_keys
from leadhand.errors import LeadhandError
from leadhand.models.folder_settings import place_in


class AgentsFileInvalid(LeadhandError):
    """An agents.toml has an invalid entry."""

    def __init__(
        self, file: str, key: str, value: object, hint: str, line: int | None = None
    ) -> None:
        super().__init__(file, key, value, hint, line)
        self.file = file
        self.key = key
        self.value = value
        self.hint = hint
        self.line = line

    @property
    def public(self) -> str:
        """Return the error without the invalid value, which may be a secret."""
        where = place_in(self.file, self.line)
        return f"{where}: {self.key}: {self.hint}" if self.key else f"{where}: {self.hint}"

    def __str__(self) -> str:
        value = "" if self.value is None else f" is {self.value!r}"
        where = place_in(self.file, self.line)
        where = f"{where}: {self.key}" if self.key else where
        return without_keys(f"{where}{value}: {self.hint}")


class ToolsFileInvalid(AgentsFileInvalid):
    """A tools.toml has an invalid entry."""


class AgentUnknown(LeadhandError):
    """This worker has no agent of this name."""

    def __init__(self, name: str, known: tuple[str, ...], unread: tuple[str, ...] = ()) -> None:
        super().__init__(name, known, unread)
        self.name = name
        self.known = known
        #: The files that may define it and cannot be parsed, each with the error.
        self.unread = unread

    def __str__(self) -> str:
        known = ", ".join(repr(name) for name in self.known)
        text = f"agent {self.name!r} is not known here; add it to agents.toml, or use {known}"
        return "; ".join([text, *self.unread])


class AgentUnnamed(LeadhandError):
    """The step names no agent, and there is no default agent."""

    def __str__(self) -> str:
        return (
            "no agent is named for this step, and there is no default agent;"
            " name one, or set LEADHAND_DEFAULT_AGENT"
        )


class AgentUnusable(LeadhandError):
    """A program, variable or package that the agent needs is missing."""

    def __init__(self, agent: str, why: str) -> None:
        super().__init__(agent, why)
        self.agent = agent
        self.why = why

    def __str__(self) -> str:
        return f"agent {self.agent!r} cannot be used here: {self.why}"


class ModelUnwanted(LeadhandError):
    """The agent's entry has no model_args."""

    def __init__(self, agent: str, model: str) -> None:
        super().__init__(agent, model)
        self.agent = agent
        self.model = model

    def __str__(self) -> str:
        return (
            f"agent {self.agent!r} cannot be given model {self.model!r}; write model_args for it"
            ' in agents.toml (model_args = ["--model", "{model}"]), or name no model'
        )


class PromptTooLong(LeadhandError):
    """The prompt is longer than a conversation can store, so later turns would get a part of it."""

    def __init__(self, agent: str, size: int, limit: int) -> None:
        super().__init__(agent, size, limit)
        self.agent = agent
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"the prompt for agent {self.agent!r} has {self.size:,} characters; its conversation"
            f" stores {self.limit:,} per turn, so shorten it or split it into several turns"
        )


class OutputUnreadable(LeadhandError):
    """The output does not have the format of the agent's entry."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why
