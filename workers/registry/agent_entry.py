"""One entry of agents.toml: how an agent is started, and how its output is parsed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from leadhand.models import patterns
from workers.processes.environment import OURS, SESSION_TOKEN
from workers.registry.json_path import FieldPath

Role = Literal["doer", "checker"]
Kind = Literal["command", "model", "callable"]
_KINDS: tuple[Kind, ...] = ("command", "model", "callable")
_EXAMPLES = (
    'command = ["program", "argument"], model = {name = "..."} or callable = "module:function"'
)
#: In an argument: the path of the JSON file that configures the MCP server.
MCP_CONFIG = "{mcp_config}"
#: As an argument of its own: the `-c` arguments that configure the MCP server for Codex.
MCP_ARGS = "{mcp_args}"
_OPENAI = "https://api.openai.com/v1"

Word = Annotated[str, Field(min_length=1)]
_Words = Annotated[tuple[Word, ...], Field(strict=False)]
Variable = Annotated[str, Field(pattern=patterns.VARIABLE)]
_Variables = Annotated[tuple[Variable, ...], Field(strict=False)]
Name = Annotated[str, Field(pattern=patterns.NAME)]
CallableName = Annotated[str, Field(pattern=patterns.FUNCTION)]
_Dollars = Annotated[float, Field(ge=0, le=1_000_000)]


#: Keys that only an agent with a command may have.
_OF_COMMANDS = frozenset({
    "doer_args", "checker_args", "model_args", "resume_args", "output", "answer", "failed", "busy",
    "waits",
    "retry_after_s", "thread", "thread_gone", "thread_in", "usage", "running",
    "activity",
})  # fmt: skip


class Entry(BaseModel):
    """Frozen and strict: an unknown key or a wrong type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _one_path(value: object) -> object:
    return (value,) if isinstance(value, str) else value


_Paths = Annotated[tuple[FieldPath, ...], Field(strict=False), BeforeValidator(_one_path)]


class UsagePaths(Entry):
    """The paths of usage numbers in an agent's output; several paths of one number are summed."""

    cost_usd: _Paths = ()
    #: All input tokens, including cached ones.
    input_tokens: _Paths = ()
    #: The input tokens that were read from a cache.
    cached_tokens: _Paths = ()
    output_tokens: _Paths = ()
    #: The path of a part's id: lines of one part replace each other, parts are summed. Without it
    #: each line has the total so far.
    each: FieldPath | None = None
    #: Whether the numbers are for this run alone, or for the whole conversation so far.
    of: Literal["run", "conversation"] = "run"


class ActivityPaths(Entry):
    """The paths of texts and tool calls in an agent's JSON lines; the first that exists counts."""

    text: _Paths = ()
    #: The name of a tool: a line that has it is a tool call.
    tool: _Paths = ()
    input: _Paths = ()
    #: The output of a tool: a line that has it, or `failed`, is the result of a call.
    result: _Paths = ()
    #: The call failed if this is neither false, null, 0 nor empty.
    failed: _Paths = ()
    #: The id of a call, in its line and in that of its result.
    id: _Paths = ()
    #: Notices of the agent's own retries and of rate limits.
    retry: _Paths = ()
    rate_limit: _Paths = ()


class Prices(Entry):
    """Dollars per million tokens, for agents that report tokens and no cost."""

    input_usd: _Dollars
    output_usd: _Dollars
    #: For cached input tokens; by default the same as `input_usd`.
    cached_usd: _Dollars | None = None

    def cost_usd(self, *, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Compute the cost of these tokens in US dollars.

        >>> Prices(input_usd=3, output_usd=15).cost_usd(
        ...     input_tokens=1_000_000, cached_tokens=0, output_tokens=100_000)
        4.5
        """
        cached_usd = self.input_usd if self.cached_usd is None else self.cached_usd
        cached = min(cached_tokens, input_tokens)
        fresh = input_tokens - cached
        parts = fresh * self.input_usd + cached * cached_usd + output_tokens * self.output_usd
        return parts / 1_000_000


class ChatModel(Entry):
    """A model behind an OpenAI-compatible chat completions API."""

    #: The model's name at the API.
    name: Word
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$")] = _OPENAI
    #: The variable of the worker's environment that holds the API key; "" for an API without keys.
    key_env: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")] = "OPENAI_API_KEY"
    #: The system message.
    system: str = ""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    #: Seconds without data after which the completion counts as broken off.
    silence_s: Annotated[float, Field(gt=0, le=3600)] = 120.0


class Agent(Entry):
    """One agent: a command, a model or a Python function, and how its output is parsed."""

    #: A program and its arguments; `{prompt}` in one of them, or the prompt is standard input.
    command: Annotated[tuple[Word, ...], Field(min_length=1, strict=False)] | None = None
    model: ChatModel | None = None
    #: `module:function`, called in a process of its own.
    callable: CallableName | None = None
    #: Appended to the command to resume a conversation; `{thread}` is replaced by its id.
    resume_args: _Words = ()
    #: Appended to the command of a doer, and to that of a checker.
    doer_args: _Words = ()
    checker_args: _Words = ()
    #: Appended to the command if a model is requested; `{model}` is replaced by its name.
    model_args: _Words = ()
    #: Variables of the worker's environment that the agent gets.
    env: _Variables = ()
    #: Variables that the agent gets and cannot run without.
    needs_env: _Variables = ()
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    #: How often a busy agent is retried before the attempt counts as failed.
    busy_tries: Annotated[int, Field(ge=0, le=100)] = 5
    #: The format of its output: text, a JSON object (all of it or its last line), or JSON lines.
    output: Literal["text", "json", "lines"] = "text"
    answer: FieldPath | None = None
    #: The path of an error message; the agent failed if there is one, whatever its exit code.
    failed: FieldPath | None = None
    #: Paths that exist in the output of an overloaded agent: a retry may succeed.
    busy: _Paths = ()
    #: Paths of messages that it prints again and again while it waits for its model without end.
    waits: _Paths = ()
    #: Paths that exist if a retry would fail in the same way.
    final: _Paths = ()
    #: The path of the seconds to wait before a retry.
    retry_after_s: FieldPath | None = None
    #: The path of the conversation's id.
    thread: FieldPath | None = None
    #: Texts that it prints if it no longer has the conversation that it is to continue.
    thread_gone: _Words = ()
    #: Where the agent can resume a conversation: anywhere, or only in the folder where it began.
    thread_in: Literal["anywhere", "folder"] = "anywhere"
    usage: UsagePaths = UsagePaths()
    #: The usage numbers during the run, if their paths differ.
    running: UsagePaths = UsagePaths()
    #: Texts and tool calls during the run; those of Claude Code and Codex need no paths.
    activity: ActivityPaths | None = None
    prices: Prices | None = None

    @field_validator("env", "needs_env")
    @classmethod
    def _not_ours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(name.startswith(OURS) and name != SESSION_TOKEN for name in value):
            raise ValueError(f"variables that begin with {OURS} are not passed on; remove it")
        return value

    @field_validator("model_args")
    @classmethod
    def _names_the_model(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not any("{model}" in part for part in value):
            raise ValueError('write {model} where the model\'s name goes: ["--model", "{model}"]')
        return value

    @field_validator("resume_args")
    @classmethod
    def _names_the_thread(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not any("{thread}" in part for part in value):
            hint = 'write {thread} where the conversation\'s id goes: ["--resume", "{thread}"]'
            raise ValueError(hint)
        return value

    @field_validator("command", "doer_args", "checker_args", "model_args", "resume_args")
    @classmethod
    def _stands_alone(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if any(MCP_ARGS in part and part != MCP_ARGS for part in value or ()):
            raise ValueError('{mcp_args} becomes several arguments; write "{mcp_args}" alone')
        return value

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            is_it = " and ".join(given) or "nothing"
            raise ValueError(f"it is {is_it}; write one of {_EXAMPLES}")
        odd = sorted(_OF_COMMANDS.intersection(self.model_fields_set)) if not self.command else []
        if odd:
            raise ValueError(f"{odd[0]} needs a command, and this is a {given[0]}; remove it")
        return self

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        if self.output == "text" and (self.answer or self.failed or self.thread):
            raise ValueError('fields are read from JSON; write output = "json" or "lines"')
        if self.output != "text" and self.answer is None:
            raise ValueError(f'output = "{self.output}" needs the field to read: answer = "FIELD"')
        if self.output != "lines" and self.activity is not None:
            raise ValueError('activity is read from JSON lines; write output = "lines"')
        if bool(self.resume_args) != (self.thread is not None):
            raise ValueError("resume_args and thread belong together; write both or neither")
        return self

    @property
    def takes_prompt_as_argument(self) -> bool:
        """Whether the command line has a place for the prompt; otherwise it is sent on stdin."""
        return any("{prompt}" in part for part in self.command or ())

    @property
    def kind(self) -> Kind:
        """Return whether the agent is a command, a model or a Python function."""
        return "command" if self.command else "model" if self.model else "callable"

    @property
    def shown(self) -> str:
        """Return the command, model or function as shown to people."""
        if self.model is not None:
            return f"{self.model.name} at {self.model.base_url}"
        return self.callable or " ".join(self.command or ())

    @property
    def needed(self) -> tuple[str, ...]:
        """Return the environment variables that the agent cannot run without."""
        key = self.model.key_env if self.model is not None else ""
        return (key, *self.needs_env) if key else self.needs_env

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of the worker's environment variables that the agent gets."""
        return (*self.env, *self.needed)

    @property
    def knows_cost(self) -> bool:
        """Whether the cost is known: the agent reports it, or has prices for its tokens."""
        return bool(self.prices or self.usage.cost_usd or self.running.cost_usd)

    @property
    def remembers(self) -> bool:
        """Whether the agent can resume a conversation."""
        return self.kind != "command" or self.thread is not None

    @property
    def forks(self) -> bool:
        """Whether the agent resumes a conversation in a copy and leaves the original unchanged."""
        return self.kind != "command" or any("fork" in word for word in self.resume_args)

    @property
    def keeps_to_folder(self) -> bool:
        """Whether the agent can resume a conversation only in the folder where it began."""
        return self.thread is not None and self.thread_in == "folder"

    def lost_thread(self, output: str) -> bool:
        """Whether the output says that the conversation to be resumed no longer exists."""
        return any(text in output for text in self.thread_gone)

    @property
    def takes_model(self) -> bool:
        """Whether a step may choose the agent's model."""
        return self.kind != "command" or bool(self.model_args)

    @property
    def takes_mcp_config(self) -> bool:
        """Whether the command line has a place for the path of an MCP configuration file."""
        return any(MCP_CONFIG in part for part in self._templates)

    @property
    def takes_mcp_args(self) -> bool:
        """Whether the command line has a place for the arguments that configure MCP."""
        return MCP_ARGS in self._templates

    @property
    def _templates(self) -> tuple[str, ...]:
        more = (self.doer_args, self.checker_args, self.model_args, self.resume_args)
        return (*(self.command or ()), *(part for parts in more for part in parts))

    def argv(
        self,
        *,
        prompt: str,
        model: str | None = None,
        thread: str | None = None,
        role: Role = "doer",
        mcp_config: str = "",
        mcp_args: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        """Return the command line with prompt, role, model, thread and MCP server filled in."""
        shown = prompt.replace("\0", "\N{REPLACEMENT CHARACTER}")
        # A prompt that begins with a dash would be parsed as an option.
        alone = f"\n{shown}" if shown.startswith("-") else shown
        # The prompt comes last: what it says in braces is no placeholder.
        argv = [
            alone
            if part == "{prompt}"
            else _configured(part, mcp_config).replace("{prompt}", shown)
            for part in _with_args(self.command or (), mcp_args)
        ]
        more = [*(self.doer_args if role == "doer" else self.checker_args)]
        if model is not None:
            more += [part.replace("{model}", model) for part in self.model_args]
        if thread is not None:
            more += [part.replace("{thread}", thread) for part in self.resume_args]
        argv += [_configured(part, mcp_config) for part in _with_args(more, mcp_args)]
        return tuple(argv)


def _with_args(parts: Iterable[str], mcp_args: tuple[str, ...]) -> list[str]:
    return [one for part in parts for one in (mcp_args if part == MCP_ARGS else (part,))]


def _configured(part: str, mcp_config: str) -> str:
    return part.replace(MCP_CONFIG, mcp_config)
