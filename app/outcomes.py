"""What came of one attempt at a step, as the worker that made it reports it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from app.reasons import Reason

Verdict = Literal["accept", "retry", "terminate"]


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
    exit_code: int | None = None
    #: Where the whole output lies on the worker's host, when it was too long to keep.
    spill: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    #: The name of the rule that found the verdict, for those who wonder.
    decided_by: str | None = None
