"""One entry of agents.toml: how an agent is started, and how what it prints is read."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from leadhand import patterns
from workers.agents.fields import FieldPath
from workers.environment import OURS

Role = Literal["doer", "checker"]
Kind = Literal["command", "model", "callable"]
_KINDS: tuple[Kind, ...] = ("command", "model", "callable")
_EXAMPLES = (
    'command = ["program", "argument"], model = {name = "..."} or callable = "module:function"'
)
_OPENAI = "https://api.openai.com/v1"

Word = Annotated[str, Field(min_length=1)]
_Words = Annotated[tuple[Word, ...], Field(strict=False)]
Variable = Annotated[str, Field(pattern=patterns.VARIABLE)]
_Variables = Annotated[tuple[Variable, ...], Field(strict=False)]
Name = Annotated[str, Field(pattern=patterns.NAME)]
CallableName = Annotated[str, Field(pattern=patterns.FUNCTION)]
_Dollars = Annotated[float, Field(ge=0, le=1_000_000)]


#: What says how a program is started and how what it prints is read.
_OF_COMMANDS = frozenset({
    "doer_args", "checker_args", "model_args", "resume_args", "output", "answer", "failed", "busy",
    "retry_after_s", "thread", "thread_in", "usage", "running",
})  # fmt: skip


class Entry(BaseModel):
    """Frozen and strict: what is written wrong is refused, never guessed at."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _one_path(value: object) -> object:
    return (value,) if isinstance(value, str) else value


_Paths = Annotated[tuple[FieldPath, ...], Field(strict=False), BeforeValidator(_one_path)]


class Told(Entry):
    """Where numbers stand; several paths of one number are added up."""

    cost_usd: _Paths = ()
    #: All of them, those read from a cache too.
    input_tokens: _Paths = ()
    #: Those of the input tokens that came from a cache.
    cached_tokens: _Paths = ()
    output_tokens: _Paths = ()
    #: What names the part that a line tells of: lines of one part replace each other, parts add
    #: up. Without it each line tells of all so far.
    each: FieldPath | None = None
    #: Whether the numbers are of this run alone, or of the whole conversation until now.
    of: Literal["run", "conversation"] = "run"


class Prices(Entry):
    """Dollars for a million tokens, where the agent tells tokens and no cost."""

    input_usd: _Dollars
    output_usd: _Dollars
    #: For those read from a cache; as the others where it is not said.
    cached_usd: _Dollars | None = None

    def cost_usd(self, *, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """What so many tokens cost.

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
    """A model behind the chat completions that OpenAI began and many others speak."""

    #: What the model is called there.
    name: Word
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$")] = _OPENAI
    #: The variable of the worker's environment that holds the key; "" where none is asked for.
    key_env: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")] = "OPENAI_API_KEY"
    #: What it is told before everything else.
    system: str = ""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    #: Seconds without a word from it, after which its answer counts as broken off.
    silence_s: Annotated[float, Field(gt=0, le=3600)] = 120.0


class Agent(Entry):
    """How one agent is started and how its answer is read: a command, a model or a function."""

    #: A program and its arguments; `{prompt}` in one of them, or the prompt is standard input.
    command: Annotated[tuple[Word, ...], Field(min_length=1, strict=False)] | None = None
    model: ChatModel | None = None
    #: `module:function`, called in a process of its own.
    callable: CallableName | None = None
    #: Added to the command where it goes on with a conversation; `{thread}` stands for it.
    resume_args: _Words = ()
    #: Added to the command where it works, and where it judges.
    doer_args: _Words = ()
    checker_args: _Words = ()
    #: Added to the command where a model is asked for; `{model}` stands for it.
    model_args: _Words = ()
    #: Variables of the worker's environment that the agent may have.
    env: _Variables = ()
    #: Those that it cannot work without.
    needs_env: _Variables = ()
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    #: How often it is asked again when it is busy; then that is an attempt that failed.
    busy_tries: Annotated[int, Field(ge=0, le=100)] = 5
    #: What its standard output is: text, one JSON object (or its last line is), or one a line.
    output: Literal["text", "json", "lines"] = "text"
    answer: FieldPath | None = None
    #: Where it says why it failed, though it may end well.
    failed: FieldPath | None = None
    #: Any of these tells that it is busy, and that another time may be better.
    busy: _Paths = ()
    #: Any of these tells that it would fail in the same way again.
    final: _Paths = ()
    #: The seconds that it asks to wait for.
    retry_after_s: FieldPath | None = None
    #: What names the conversation.
    thread: FieldPath | None = None
    #: From where a conversation is found: from anywhere, or from the folder alone where it began.
    thread_in: Literal["anywhere", "folder"] = "anywhere"
    usage: Told = Told()
    #: What it tells before its end, where that stands elsewhere.
    running: Told = Told()
    prices: Prices | None = None

    @field_validator("env", "needs_env")
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

    @field_validator("resume_args")
    @classmethod
    def _names_the_thread(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not any("{thread}" in part for part in value):
            hint = 'write {thread} where the conversation\'s id goes: ["--resume", "{thread}"]'
            raise ValueError(hint)
        return value

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            is_it = " and ".join(given) or "nothing"
            raise ValueError(f"it is {is_it}; write one of {_EXAMPLES}")
        odd = sorted(_OF_COMMANDS.intersection(self.model_fields_set)) if not self.command else []
        if odd:
            raise ValueError(f"{odd[0]} goes with a command, and this is a {given[0]}; drop it")
        return self

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        if self.output == "text" and (self.answer or self.failed or self.thread):
            raise ValueError('fields are read from JSON; write output = "json" or "lines"')
        if self.output != "text" and self.answer is None:
            raise ValueError(f'output = "{self.output}" needs the field to read: answer = "FIELD"')
        if bool(self.resume_args) != (self.thread is not None):
            raise ValueError("resume_args and thread belong together; write both or neither")
        return self

    @property
    def takes_prompt_as_argument(self) -> bool:
        return any("{prompt}" in part for part in self.command or ())

    @property
    def kind(self) -> Kind:
        return "command" if self.command else "model" if self.model else "callable"

    @property
    def shown(self) -> str:
        """What it is, in a word for people."""
        if self.model is not None:
            return f"{self.model.name} at {self.model.base_url}"
        return self.callable or " ".join(self.command or ())

    @property
    def needed(self) -> tuple[str, ...]:
        """The variables that it cannot work without."""
        key = self.model.key_env if self.model is not None else ""
        return (key, *self.needs_env) if key else self.needs_env

    @property
    def variables(self) -> tuple[str, ...]:
        """What of the worker's environment it is handed."""
        return (*self.env, *self.needed)

    @property
    def remembers(self) -> bool:
        """Whether it can go on with a conversation."""
        return self.kind != "command" or self.thread is not None

    @property
    def keeps_to_folder(self) -> bool:
        """Whether it finds a conversation only in the folder where that began."""
        return self.thread is not None and self.thread_in == "folder"

    @property
    def takes_model(self) -> bool:
        """Whether it can be told which model to use."""
        return self.kind != "command" or bool(self.model_args)

    def argv(
        self,
        *,
        prompt: str,
        model: str | None = None,
        thread: str | None = None,
        role: Role = "doer",
    ) -> tuple[str, ...]:
        """The command with all that it is to be told filled in."""
        shown = prompt.replace("\0", "\N{REPLACEMENT CHARACTER}")
        # A prompt that begins with a dash would be taken for an option.
        alone = f"\n{shown}" if shown.startswith("-") else shown
        told = [
            alone if part == "{prompt}" else part.replace("{prompt}", shown)
            for part in self.command or ()
        ]
        told += self.doer_args if role == "doer" else self.checker_args
        if model is not None:
            told += [part.replace("{model}", model) for part in self.model_args]
        if thread is not None:
            told += [part.replace("{thread}", thread) for part in self.resume_args]
        return tuple(told)
