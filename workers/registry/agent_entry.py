"""One entry of agents.toml: how an agent is started, and how its output is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from leadhand.models import patterns
from workers.processes.environment import OURS, SESSION_TOKEN

_NAME = r"[A-Za-z0-9_-]+"
_TEST = rf"\[{_NAME}\^?=[^\[\]]*\]"
_SEGMENT = rf"(?:{_NAME}(?:{_TEST})*|(?:{_TEST})+)"
#: Names with dots between them. ``[NAME=VALUE]`` after a name, or at the start, matches only an
#: object that has this field with this value, ``[NAME^=VALUE]`` one whose field begins with it.
FieldPath = Annotated[str, Field(pattern=rf"^{_SEGMENT}(?:\.{_SEGMENT})*$", max_length=300)]
_SEGMENTS = re.compile(rf"({_NAME})?((?:{_TEST})*)(?:\.|$)")
_TESTS = re.compile(rf"\[({_NAME})(\^?=)([^\[\]]*)\]")
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
_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
#: HTTP statuses of a server that is overloaded or cannot reach the model.
_BUSY_STATUSES = (429, 500, 502, 503, 504, 529)
#: How Claude Code's messages begin if its connection was refused or dropped; it has no status then.
_CLAUDE_CONNECTION = (
    "API Error: Unable to connect to API",
    "API Error: Connection to the API was lost",
    "API Error: Connection error",
)
#: How the messages of Codex for all of these begin; it reports no status.
_CODEX_BUSY_MESSAGES = (
    "exceeded retry limit, last status: 429 Too Many Requests",
    "stream disconnected before completion: ",
    "We’re currently experiencing high demand, which may cause temporary errors.",  # noqa: RUF001
)
#: What Claude Code may call without asking a person: tools of its own, and those of this project.
_PROJECT_TOOLS = "mcp__leadhand__*"
_READ_TOOLS = "Read,Grep,Glob"


class _Segment(NamedTuple):
    name: str
    tests: tuple[tuple[str, str, str], ...]


def find(path: str, value: JsonValue) -> JsonValue:
    """Returns the value at a path in JSON; None if there is none or a condition does not match.

    >>> event = {"type": "done", "usage": {"tokens": 7}}
    >>> find("[type=done].usage.tokens", event), find("[type=begun].usage.tokens", event)
    (7, None)
    >>> find("[type^=do].usage.tokens", event), find("[type^=on].usage.tokens", event)
    (7, None)
    """
    for segment in _segments(path):
        if segment.name:
            value = value.get(segment.name) if isinstance(value, dict) else None
        if not _holds(segment.tests, value):
            return None
    return value


@lru_cache(maxsize=512)
def _segments(path: str) -> tuple[_Segment, ...]:
    return tuple(_split(path))


def _split(path: str) -> Iterator[_Segment]:
    for match in _SEGMENTS.finditer(path):
        if match.group():
            yield _Segment(match.group(1) or "", tuple(_TESTS.findall(match.group(2))))


def _holds(tests: tuple[tuple[str, str, str], ...], value: JsonValue) -> bool:
    if not tests:
        return True
    return isinstance(value, dict) and all(
        _fits(_word(value.get(name)), sign, word) for name, sign, word in tests
    )


def _fits(found: str | None, sign: str, word: str) -> bool:
    return found is not None and (found.startswith(word) if sign == "^=" else found == word)


def _word(value: JsonValue) -> str | None:
    """A scalar as TOML writes it; None for a list or an object.

    >>> _word(True), _word("x"), _word(3), _word([])
    ('true', 'x', '3', None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


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


_CLAUDE = Agent(
    command=(
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        *("--mcp-config", "{mcp_config}"),
    ),
    # No person can approve a tool call: a doer may edit and run, a checker may only read. What it
    # is not offered, the user's own permissions cannot allow.
    doer_args=("--permission-mode", "acceptEdits", "--allowedTools", f"Bash,{_PROJECT_TOOLS}"),
    checker_args=("--tools", _READ_TOOLS, "--allowedTools", f"{_READ_TOOLS},{_PROJECT_TOOLS}"),
    model_args=("--model", "{model}"),
    # Each turn gets its own session id, so that the next turn does not resume a failed one.
    resume_args=("--resume", "{thread}", "--fork-session"),
    env=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_MAX_RETRIES",
        "CLAUDE_CONFIG_DIR",
        "DISABLE_TELEMETRY",
        "MCP_CONNECT_TIMEOUT_MS",
        *_NETWORK,
    ),
    output="lines",
    answer="[type=result].result",
    failed="[type=result][is_error=true].result",
    busy=(
        *(f"[type=result][is_error=true][api_error_status={code}]" for code in _BUSY_STATUSES),
        *(f"[type=result][is_error=true][result^={text}]" for text in _CLAUDE_CONNECTION),
    ),
    thread="session_id",
    thread_gone=("No conversation found with session ID",),
    thread_in="folder",
    usage=UsagePaths(
        cost_usd=("[type=result].total_cost_usd",),
        input_tokens=(
            "[type=result].usage.input_tokens",
            "[type=result].usage.cache_creation_input_tokens",
            "[type=result].usage.cache_read_input_tokens",
        ),
        cached_tokens=("[type=result].usage.cache_read_input_tokens",),
        output_tokens=("[type=result].usage.output_tokens",),
    ),
    running=UsagePaths(
        each="[type=assistant].message.id",
        input_tokens=(
            "[type=assistant].message.usage.input_tokens",
            "[type=assistant].message.usage.cache_creation_input_tokens",
            "[type=assistant].message.usage.cache_read_input_tokens",
        ),
        cached_tokens=("[type=assistant].message.usage.cache_read_input_tokens",),
        output_tokens=("[type=assistant].message.usage.output_tokens",),
    ),
)

_CODEX = Agent(
    command=("codex", "exec", "--skip-git-repo-check", "--json", "{mcp_args}"),
    # Codex's own sandbox: a doer may write in its folder, a checker nowhere.
    doer_args=("--sandbox", "workspace-write"),
    checker_args=("--sandbox", "read-only"),
    model_args=("--model", "{model}"),
    resume_args=("fork", "{thread}", "-"),
    env=("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_HOME", *_NETWORK),
    output="lines",
    answer="[type=item.completed].item[type=agent_message].text",
    failed="[type=turn.failed].error.message",
    busy=tuple(f"[type=turn.failed].error[message^={text}]" for text in _CODEX_BUSY_MESSAGES),
    # If the connection is refused, it waits without end, whatever its configuration says.
    waits=("[type=error][message^=Reconnecting... waiting for network].message",),
    thread="[type=thread.started].thread_id",
    thread_gone=("no rollout found for thread id", "missing source rollout"),
    usage=UsagePaths(
        of="conversation",
        input_tokens=("[type=turn.completed].usage.input_tokens",),
        cached_tokens=("[type=turn.completed].usage.cached_input_tokens",),
        output_tokens=("[type=turn.completed].usage.output_tokens",),
    ),
)

BUILTIN_AGENTS: Mapping[str, Agent] = {"claude": _CLAUDE, "codex": _CODEX}
