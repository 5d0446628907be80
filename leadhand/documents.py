"""The documents that people write, as pure models: a loop, or a workflow of phases."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from leadhand import patterns

#: How often a loop turns unless it says otherwise.
DEFAULT_MAX_ITERATIONS = 3
#: After how many turns that come to the same a doer is told, unless its loop says otherwise.
DEFAULT_NO_PROGRESS = 3
#: The most turns that one loop may ask for; a limit is a guard, not a wish.
MAX_ITERATIONS_CEILING = 10_000
#: The most checkers of all phases of a workflow together.
MAX_CHECKERS = 10_000
#: Seconds that a doer may take unless it says otherwise.
AGENT_TIMEOUT_S = 3600.0
#: Seconds that a checker may take unless it says otherwise.
CHECK_TIMEOUT_S = 300.0


def _without_zero(text: str) -> str:
    """No program takes a zero byte among its arguments, and no file has one in its name."""
    if "\0" in text:
        raise ValueError("it holds a zero character; leave that out")
    return text


Name = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(_without_zero)]
Text = Annotated[str, Field(min_length=1, max_length=200_000)]
#: A command of the shell's.
Command = Annotated[Text, AfterValidator(_without_zero)]
#: Numbers are strict: true is not 1, and "3" is not 3.
Seconds = Annotated[float, Field(strict=True, gt=0, le=7 * 24 * 3600)]
Callable_ = Annotated[str, Field(pattern=patterns.FUNCTION, max_length=300)]
FileName = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_without_zero)]
#: A key of the user's own, whose concurrency and rate may be limited.
Key = Annotated[str, Field(pattern=patterns.NAME)]
#: Where work is done, as LEADHAND_PLACE names it.
Place = Annotated[str, Field(pattern=patterns.NAME)]
Priority = Literal["high", "normal", "low"]
Rule = Literal["all", "any"] | Annotated[int, Field(strict=True, ge=1, le=100)]

_ON_FAIL = re.compile(r"^(stop|continue|retry:([1-9][0-9]{0,2}))$")
_URL = re.compile(
    r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?([/?][\x21\x22\x24-\x7e]*)?$"
)
_PREFIXED = re.compile(r"^(agent|callable|rubric)\s*:\s*(.*)$", re.DOTALL)


class Document(BaseModel):
    """Frozen, strict about fields: an unknown one is an error, never silently dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class Doer(Document):
    """Who works: exactly one of a named agent, a free command, a Python callable."""

    agent: Name | None = None
    command: Command | None = None
    callable: Callable_ | None = None
    #: A callable that takes milliseconds and may share its process with other calls.
    quick: bool = False

    @model_validator(mode="after")
    def _exactly_one(self) -> Doer:
        if sum(v is not None for v in (self.agent, self.command, self.callable)) != 1:
            raise ValueError("give exactly one of agent, command, callable")
        if self.quick and self.callable is None:
            raise ValueError("quick belongs to a callable")
        return self


class Checker(Document):
    """Who judges: exactly one of a command, an instruction to an agent, a callable, a rubric.

    As text, ``agent: ...`` is an instruction, ``callable: module:function`` a callable,
    ``rubric: FILE`` a rubric, and anything else a shell command whose exit code decides.
    """

    name: Name | None = None
    command: Command | None = None
    prompt: Text | None = None
    callable: Callable_ | None = None
    #: A Markdown file, from the working folder: gates to run, criteria for an agent to judge by.
    rubric: FileName | None = None
    #: The named agent that follows ``prompt`` or ``rubric``; the doer's default agent where absent.
    agent: Name | None = None
    model: Name | None = None
    timeout_s: Seconds = CHECK_TIMEOUT_S
    #: A callable that takes milliseconds and may share its process with other calls.
    quick: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = value.strip()
        if not text:
            raise ValueError("a checker may not be empty; give a command or 'agent: ...'")
        match = _PREFIXED.match(text)
        if match is None:
            return {"command": text}
        kind, rest = match.groups()
        return {"prompt" if kind == "agent" else kind: rest}

    @model_validator(mode="after")
    def _exactly_one(self) -> Checker:
        kinds = (self.command, self.prompt, self.callable, self.rubric)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("give exactly one of command, prompt, callable, rubric")
        asks = self.prompt is not None or self.rubric is not None
        if not asks and (self.agent is not None or self.model is not None):
            raise ValueError("agent and model belong to a checker with a prompt or a rubric")
        if self.quick and self.callable is None:
            raise ValueError("quick belongs to a callable")
        return self


class Webhook(Document):
    """Who is told over HTTP of what becomes of the session."""

    url: str = Field(max_length=2000, repr=False)
    #: ended: whatever its end; failed: ended as failed; waiting: all of it waits for people.
    events: Annotated[
        tuple[Literal["ended", "failed", "waiting"], ...], Field(min_length=1, max_length=3)
    ] = ("ended",)
    #: Signs what is told, so that its receiver knows who told it; without one nothing is signed.
    secret: str | None = Field(default=None, min_length=16, max_length=200, repr=False)

    @field_validator("url")
    @classmethod
    def _leads_somewhere(cls, value: str) -> str:
        try:
            if not _URL.match(value) or urlsplit(value).port == 0:
                raise ValueError
        except ValueError:
            raise ValueError(
                "it cannot be called; give https://HOST/PATH in plain ASCII,"
                " without user, password or fragment"
            ) from None
        return value


class Budget(Document):
    """What a whole session may use; what reaches its limit ends the session.

    The cost and tokens of a child session count in its parent too, once it has ended. Time in which
    the session is stopped does not count.
    """

    iterations: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] | None = None
    steps: Annotated[int, Field(strict=True, ge=1, le=100_000_000)] | None = None
    wall_s: Annotated[float, Field(strict=True, gt=0, le=365 * 24 * 3600)] | None = None
    #: US dollars, as far as agents tell what they cost.
    cost_usd: Annotated[float, Field(strict=True, gt=0, le=1_000_000)] | None = None
    #: Those read and those written together.
    tokens: Annotated[int, Field(strict=True, ge=1, le=10**12)] | None = None
    #: Runs of one outermost loop, and of all of them together, that may end without acceptance.
    stage_stops: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    stops: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None

    def limits(self) -> dict[str, int]:
        """The limits that are given, as the counters have them: whole millionths, whole ms."""
        given = {
            "iterations": self.iterations,
            "steps": self.steps,
            "tokens": self.tokens,
            "stage_stops": self.stage_stops,
            "stops": self.stops,
            "cost_micros": None if self.cost_usd is None else max(1, round(self.cost_usd * 1e6)),
            "wall_ms": None if self.wall_s is None else max(1, round(self.wall_s * 1000)),
        }
        return {name: limit for name, limit in given.items() if limit is not None}


class _Loop(Document):
    task: Text
    checkers: Annotated[tuple[Checker, ...], Field(min_length=1, max_length=100)]
    rule: Rule = "all"
    max_iterations: Annotated[int, Field(strict=True, ge=0, le=MAX_ITERATIONS_CEILING)] = (
        DEFAULT_MAX_ITERATIONS
    )
    doer: Doer | None = None
    model: Name | None = None
    checker_model: Name | None = None
    timeout_s: Seconds = AGENT_TIMEOUT_S
    file_scope: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    verify: Annotated[tuple[Text, ...], Field(max_length=1000)] = ()
    #: After so many iterations with the same work and the same refusals the doer is told, and one
    #: later the loop ends; 0 is never.
    no_progress: Annotated[int, Field(strict=True, ge=0, le=1000)] = DEFAULT_NO_PROGRESS
    #: Doers with the same key share its limits, whatever session they are of.
    concurrency_key: Key | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_checker_is_a_list(cls, value: Any) -> Any:
        if isinstance(value, dict) and "checker" in value:
            if "checkers" in value:
                raise ValueError("give checker or checkers, not both")
            value = dict(value)
            checker = value.pop("checker")
            value["checkers"] = checker if isinstance(checker, (list, tuple)) else [checker]
        return value

    @field_validator("rule")
    @classmethod
    def _can_be_met(cls, value: Rule, info: ValidationInfo) -> Rule:
        checkers = info.data.get("checkers")
        if isinstance(value, int) and checkers is not None and value > len(checkers):
            raise ValueError(
                f"rule asks for {value} checkers to accept, but there are {len(checkers)};"
                " ask for fewer, or name more checkers"
            )
        return value


class LoopDocument(_Loop):
    """One doer-checker loop."""

    kind: Literal["loop"] = "loop"
    label: Name | None = None
    priority: Priority = "normal"
    cwd: str | None = None
    place: Place | None = None
    webhook: Webhook | None = None
    budget: Budget = Budget()

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return absolute(value)


class PhaseDocument(_Loop):
    """A named loop of a workflow."""

    name: Name
    on_fail: str = "stop"
    #: Earlier phases whose results the doer is shown; absent: the phase before this one.
    pipe_from: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()

    @model_validator(mode="before")
    @classmethod
    def _pipe_is_pipe_from(cls, value: Any) -> Any:
        if isinstance(value, dict) and "pipe" in value:
            if "pipe_from" in value:
                raise ValueError("give pipe or pipe_from, not both")
            value = dict(value)
            pipe = value.pop("pipe")
            value["pipe_from"] = () if pipe is None else pipe
        return value

    @field_validator("pipe_from", mode="before")
    @classmethod
    def _one_source_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("on_fail")
    @classmethod
    def _known_policy(cls, value: str) -> str:
        if not _ON_FAIL.match(value):
            raise ValueError(f"on_fail is {value!r}; use 'stop', 'continue' or 'retry:N'")
        return value

    @property
    def retries(self) -> int:
        """How many extra runs ``on_fail`` grants the phase."""
        return int(self.on_fail[6:]) if self.on_fail.startswith("retry:") else 0


class WorkflowDocument(Document):
    """Loops in sequence, each with its own task, checkers and policy."""

    kind: Literal["workflow"] = "workflow"
    name: Name
    phases: Annotated[tuple[PhaseDocument, ...], Field(min_length=1, max_length=1000)]
    doer: Doer | None = None
    model: Name | None = None
    label: Name | None = None
    priority: Priority = "normal"
    cwd: str | None = None
    place: Place | None = None
    webhook: Webhook | None = None
    budget: Budget = Budget()

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return absolute(value)

    @field_validator("phases")
    @classmethod
    def _fit_together(cls, value: tuple[PhaseDocument, ...]) -> tuple[PhaseDocument, ...]:
        checkers = sum(len(phase.checkers) for phase in value)
        if checkers > MAX_CHECKERS:
            raise ValueError(
                f"they have {checkers} checkers together; a workflow has at most {MAX_CHECKERS}"
            )
        seen: set[str] = set()
        for phase in value:
            if phase.name in seen:
                raise ValueError(f"Duplicate phase name: {phase.name!r}; names must differ")
            unknown = [source for source in phase.pipe_from if source not in seen]
            if unknown:
                raise ValueError(
                    f"phase {phase.name!r} pipes from unknown phase {unknown[0]!r};"
                    " pipe only from a phase that stands before it"
                )
            seen.add(phase.name)
        return value


def absolute(value: str | None, *, name: str = "cwd") -> str | None:
    """The folder as it is given. Raises ValueError for one that leads nowhere by itself."""
    if value is not None and ("\0" in value or not PurePosixPath(value).is_absolute()):
        raise ValueError(f"{name} is {value!r}; give an absolute path")
    return value
