"""What can be wrong with the agents that a worker is told of.

LeadhandError
├── AgentsFileInvalid       an agents.toml holds what cannot be used
├── AgentUnknown            no agent has this name here
├── AgentUnnamed            nobody said who works, and there is no default
├── AgentUnusable           something that the agent needs is not here
├── ModelUnwanted           the agent's entry does not say how to name a model
├── PromptTooLong           it is longer than a conversation keeps
└── AnswerUnreadable        the output is not of the form that the entry names
"""

from __future__ import annotations

from app.errors import LeadhandError
from app.redaction import without_keys


class AgentsFileInvalid(LeadhandError):
    """An agents.toml holds what cannot be used."""

    def __init__(self, file: str, key: str, value: object, hint: str) -> None:
        super().__init__(file, key, value, hint)
        self.file = file
        self.key = key
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        value = "" if self.value is None else f" is {self.value!r}"
        return without_keys(f"{where}{value}: {self.hint}")


class AgentUnknown(LeadhandError):
    """No agent has this name here."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        known = ", ".join(repr(name) for name in self.known)
        return f"agent {self.name!r} is not known here; add it to agents.toml, or use {known}"


class AgentUnnamed(LeadhandError):
    """Nobody said who works, and there is no default."""

    def __str__(self) -> str:
        return (
            "no agent is named for this step, and there is no default agent;"
            " name one, or set LEADHAND_DEFAULT_AGENT"
        )


class AgentUnusable(LeadhandError):
    """Something that the agent needs is not here."""

    def __init__(self, agent: str, why: str) -> None:
        super().__init__(agent, why)
        self.agent = agent
        self.why = why

    def __str__(self) -> str:
        return f"agent {self.agent!r} cannot be used here: {self.why}"


class ModelUnwanted(LeadhandError):
    """The agent's entry does not say how to name a model."""

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
    """It is longer than a conversation keeps, and later turns would be told a part of it."""

    def __init__(self, agent: str, size: int, limit: int) -> None:
        super().__init__(agent, size, limit)
        self.agent = agent
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"agent {self.agent!r} is to be told {self.size:,} characters at once; its conversation"
            f" keeps {self.limit:,} of a turn, so tell it less, or in several messages"
        )


class AnswerUnreadable(LeadhandError):
    """The output is not of the form that the entry names."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why
