"""One entry of agents.toml: how an agent is started, and how what it prints is read."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from workers.agents.fields import FieldPath
from workers.environment import OURS

Role = Literal["doer", "checker"]
Kind = Literal["command", "model", "callable"]

Word = Annotated[str, Field(min_length=1)]
_Words = Annotated[tuple[Word, ...], Field(strict=False)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Variables = Annotated[tuple[Variable, ...], Field(strict=False)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
_Paths = Annotated[tuple[FieldPath, ...], Field(strict=False)]
_Dollars = Annotated[float, Field(ge=0, le=1_000_000)]


class Entry(BaseModel):
    """Frozen and strict: what is written wrong is refused, never guessed at."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


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

    @field_validator("cost_usd", "input_tokens", "cached_tokens", "output_tokens", mode="before")
    @classmethod
    def _one_path(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


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


class Agent(Entry):
    """How one agent is started and how its answer is read."""

    #: A program and its arguments; `{prompt}` in one of them, or the prompt is standard input.
    command: Annotated[tuple[Word, ...], Field(min_length=1, strict=False)]
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
    #: What its standard output is: text, one JSON object (or its last line is), or one a line.
    output: Literal["text", "json", "lines"] = "text"
    answer: FieldPath | None = None
    #: Where it says why it failed, though it may end well.
    failed: FieldPath | None = None
    #: What names the conversation.
    thread: FieldPath | None = None
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
        return any("{prompt}" in part for part in self.command)

    @property
    def variables(self) -> tuple[str, ...]:
        """What of the worker's environment it is handed."""
        return (*self.env, *self.needs_env)

    @property
    def remembers(self) -> bool:
        """Whether it can go on with a conversation."""
        return self.thread is not None

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
            for part in self.command
        ]
        told += self.doer_args if role == "doer" else self.checker_args
        if model is not None:
            told += [part.replace("{model}", model) for part in self.model_args]
        if thread is not None:
            told += [part.replace("{thread}", thread) for part in self.resume_args]
        return tuple(told)
