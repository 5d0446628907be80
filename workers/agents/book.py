"""The agents that this worker can start: those of agents.toml, and ready-made ones."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from workers.agents.errors import AgentsFileInvalid, AgentUnknown
from workers.environment import OURS

_Word = Annotated[str, Field(min_length=1)]
_Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
_Answer = Annotated[str, Field(pattern=r"^(text|codex|json:[A-Za-z0-9_.-]+)$")]


class Agent(BaseModel):
    """How one agent is started and how its answer is read."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    #: A program and its arguments; `{prompt}` in one of them, or the prompt is standard input.
    command: Annotated[tuple[_Word, ...], Field(min_length=1, strict=False)]
    #: Variables of the worker's environment that the agent may have.
    env: Annotated[tuple[_Variable, ...], Field(strict=False)] = ()
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    #: Added to the command where a model is asked for; `{model}` stands for it.
    model_args: Annotated[tuple[_Word, ...], Field(strict=False)] = ()
    #: `text`: all of standard output. `json:FIELD`: a field of the JSON object that it is.
    #: `codex`: the last agent message of the JSON lines that `codex exec --json` writes.
    answer: _Answer = "text"

    @field_validator("env")
    @classmethod
    def _not_ours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(name.startswith(OURS) for name in value):
            raise ValueError(f"no variable that begins with {OURS} is handed on; drop it")
        return value

    @field_validator("model_args")
    @classmethod
    def _names_the_model(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not any("{model}" in part for part in value):
            raise ValueError('write {model} where the model\'s name goes: ["--model", "{model}"]')
        return value

    @property
    def takes_prompt_as_argument(self) -> bool:
        return any("{prompt}" in part for part in self.command)

    def argv(self, *, prompt: str, model: str | None) -> tuple[str, ...]:
        """The command with the prompt and the model filled in."""
        shown = prompt.replace("\0", "\N{REPLACEMENT CHARACTER}")
        # A prompt that begins with a dash would be taken for an option.
        alone = f"\n{shown}" if shown.startswith("-") else shown
        told = [
            alone if part == "{prompt}" else part.replace("{prompt}", shown)
            for part in self.command
        ]
        given = [] if model is None else [p.replace("{model}", model) for p in self.model_args]
        return (*told, *given)


_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
READY_MADE: Mapping[str, Agent] = {
    "claude": Agent(
        command=("claude", "-p", "{prompt}", "--output-format", "json"),
        env=(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "CLAUDE_CONFIG_DIR",
            "DISABLE_TELEMETRY",
            *_PROXIES,
        ),
        model_args=("--model", "{model}"),
        answer="json:result",
    ),
    "codex": Agent(
        command=("codex", "exec", "--skip-git-repo-check", "--json", "{prompt}"),
        env=("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_HOME", *_PROXIES),
        model_args=("--model", "{model}"),
        answer="codex",
    ),
}


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: dict[_Name, Agent] = {}


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
        raise AgentsFileInvalid(str(file), "", "", hint) from error
    except ValueError as error:
        raise AgentsFileInvalid(str(file), "", "", f"is not TOML: {error}") from error
    try:
        return _File.model_validate(raw)
    except ValidationError as error:
        raise _first_of(error, file) from None


_HINTS: Mapping[str, str] = {
    "missing": 'is missing; write command = ["program", "argument", "{prompt}"]',
    "extra_forbidden": f"is not a key here; use {', '.join(Agent.model_fields)}",
    "tuple_type": 'write a list: ["program", "argument"]',
    "too_short": 'write a program and its arguments: ["program", "argument"]',
}


def _first_of(error: ValidationError, file: Path) -> AgentsFileInvalid:
    first = error.errors(include_url=False)[0]
    kind = first["type"]
    key = ".".join(str(part) for part in first["loc"] if part != "[key]")
    if kind == "extra_forbidden" and len(first["loc"]) == 1:
        return AgentsFileInvalid(str(file), key, first["input"], "write it as [agents.NAME]")
    hint = _HINTS.get(kind, first["msg"].removeprefix("Value error, "))
    if kind == "string_pattern_mismatch" and first["loc"][-1] == "answer":
        hint = "use 'text', 'codex' or 'json:FIELD'"
    value = None if kind == "missing" else first["input"]
    return AgentsFileInvalid(str(file), key, value, hint)
