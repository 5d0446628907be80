"""What came of one attempt at a step, as the worker that made it reports it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import PydanticSerializationError

from app.reasons import Reason

Verdict = Literal["accept", "retry", "terminate"]


#: Millionths of a dollar: what costs are counted in, so that sums are exact.
MICROS = 1_000_000
Tokens = Annotated[int, Field(ge=0, le=10**12)]


class Usage(BaseModel):
    """What an attempt says that it used; no cost where nobody told one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cost_usd: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None = None
    input_tokens: Tokens = 0
    output_tokens: Tokens = 0

    @property
    def cost_micros(self) -> int:
        """The cost in millionths of a dollar; 0 where it is not known."""
        return round((self.cost_usd or 0) * MICROS)


class Thread(BaseModel):
    """Where an agent's conversation goes on; an id of None forgets it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: ``agent|identifier``, as the step names it.
    conversation: str
    id: str | None = None
    #: What its agent told of all of it so far, where it tells no number of one turn alone.
    told: Usage | None = None
    #: The id before this one, where an id names one turn and not the whole conversation.
    after: str | None = None


class Busy(BaseModel):
    """Whoever was asked cannot answer now; the step is tried again later, and holds no worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: What was asked for by whom is busy; without it the wait doubles from a second on.
    after_s: Annotated[float, Field(ge=0, le=3600)] | None = None
    #: How often that may happen to one step, before it fails.
    tries: Annotated[int, Field(ge=0, le=100)]


class Gate(BaseModel):
    """One gate and how it went."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: str
    passed: bool
    said: str = ""
    #: It passed on the same work before, and was not run again.
    kept: bool = False


class Ruling(BaseModel):
    """By which rubric a check judged, how its gates went, and on which state of the folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: 8 hex characters of the file's SHA-256.
    rubric: str
    gates: tuple[Gate, ...] = ()
    digest: str | None = None


class Outcome(BaseModel):
    """The one thing that a worker says about its attempt.

    `text` is what the next reader is shown (a doer's answer, a checker's feedback); `value` is
    what references resolve to, where it is more than text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    word: Literal["succeeded", "failed", "skipped"]
    #: Of a check, judge or doer: what it thinks of the work.
    verdict: Verdict | None = None
    text: str = ""
    value: JsonValue = None
    reason: Reason | None = None
    #: Whether a failed attempt may be tried again by the step's retry policy.
    retryable: bool = True
    #: Of a failed attempt: it may come again later, beside what the retry policy grants.
    busy: Busy | None = None
    exit_code: int | None = None
    #: Where the whole output lies on the worker's host, when it was too long to keep.
    spill: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    #: The name of the rule that found the verdict, for those who wonder.
    decided_by: str | None = None
    #: Of a check by a rubric.
    ruling: Ruling | None = None
    usage: Usage | None = None
    #: Where the conversation that this step is part of goes on.
    thread: Thread | None = None
    #: Of the working folder, after a doer worked in it.
    digest: str | None = None
    #: Where the difference that a doer's work made is kept.
    diff: str | None = None
    #: What an agent was told; cut, unless later turns of its conversation are told it again.
    prompt: str | None = None


def writable(outcome: Outcome) -> Outcome:
    r"""The outcome as it can be kept: half a surrogate pair is a question mark.

    >>> writable(Outcome(word="succeeded", text="half a \ud83d")).text
    'half a ?'
    """
    return written(outcome)[0]


def written(outcome: Outcome) -> tuple[Outcome, str]:
    """The outcome as it can be kept, and its JSON without what is not set."""
    try:
        return outcome, outcome.model_dump_json(exclude_none=True)
    except PydanticSerializationError:
        kept = Outcome.model_validate(_writable(outcome.model_dump()))
        return kept, kept.model_dump_json(exclude_none=True)


def _writable(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_writable(name): _writable(item) for name, item in value.items()}
        case list() | tuple():
            return [_writable(item) for item in value]
        case _:
            return value
