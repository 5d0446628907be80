"""Verdicts with their counts of tests, and reasons."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from leadhand.models.views.view import View

VerdictWord = Literal["accept", "retry", "terminate"]
_WORDS: tuple[VerdictWord, ...] = ("terminate", "retry", "accept")
_Number = Annotated[int, Field(ge=0, le=10**9)]


def verdict_word(text: object) -> VerdictWord | None:
    """Returns the verdict that a text names, ignoring upper and lower case; None for other text.

    >>> verdict_word(" Accept "), verdict_word("accepted")
    ('accept', None)
    """
    word = text.strip().lower() if isinstance(text, str) else None
    return next((one for one in _WORDS if one == word), None)


class Counts(BaseModel):
    """How many tests a check ran, and how they ended."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    passed: _Number = 0
    failed: _Number = 0
    skipped: _Number = 0
    #: All that were found: with those of a plan that did not run.
    collected: _Number = 0

    @property
    def text(self) -> str:
        """Return the counts for people, without those that are 0.

        >>> Counts(passed=12, skipped=3, collected=15).text, Counts().text
        ('12 passed, 3 skipped', 'no tests')
        """
        each = (("failed", self.failed), ("passed", self.passed), ("skipped", self.skipped))
        return ", ".join(f"{count} {word}" for word, count in each if count) or "no tests"


def counts_text(value: object) -> str:
    """Returns the text of counts in a view's JSON; '' for null and for anything else.

    >>> counts_text({"passed": 2, "failed": 1}), counts_text(None)
    ('1 failed, 2 passed', '')
    """
    try:
        return Counts.model_validate(value).text if isinstance(value, dict) else ""
    except ValidationError:
        return ""


class ReasonCode(StrEnum):
    DONE = "done"
    ACCEPTED = "accepted"
    TERMINATED = "terminated"
    MAX_ITERATIONS = "max_iterations"
    BREAK = "break"
    CONDITION = "condition"
    EXIT = "exit"
    FAILED_STEP = "failed_step"
    TIMEOUT = "timeout"
    DEADLINE = "deadline"
    BUDGET = "budget"
    NO_PROGRESS = "no_progress"
    CONTESTED = "contested"
    CHECKER_DOWN = "checker_down"
    CIRCUIT_OPEN = "circuit_open"
    LOST = "lost"
    BLOCKED_ON = "blocked_on"
    INVALID_ANSWER = "invalid_answer"
    STOP_LIMIT = "stop_limit"
    DECLINED = "declined"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    #: A user skipped the step.
    USER_SKIP = "user_skip"
    USER_STOP = "user_stop"
    ABORTED = "aborted"
    PARENT_ENDED = "parent_ended"
    #: Two tasks changed the same lines, and the conflict was not resolved.
    CONFLICT = "conflict"
    #: A task's checkers do not accept its work once it is merged with that of others.
    RECHECK_FAILED = "recheck_failed"
    #: A doer changed protected files.
    TAMPERED = "tampered"
    #: A checker's answer was no verdict in two iterations in a row.
    JUDGE_UNCLEAR = "judge_unclear"


class Reason(View):
    """One link of the chain of reasons."""

    # Records and outcomes may come from another version, as responses do.
    model_config = ConfigDict(extra="ignore")

    # Any text: a newer server may have reasons that this client does not know.
    code: Annotated[ReasonCode | str, Field(union_mode="left_to_right")]
    text: str = ""
    #: The address of the step or loop that this reason is about.
    at: str | None = None
    #: The child session whose end this is; the addresses in `beneath` are in its program.
    child: str | None = None
    beneath: Reason | None = None

    def chain(self) -> Iterator[Reason]:
        """Return this reason and its causes, the root cause last."""
        link: Reason | None = self
        while link is not None:
            yield link
            link = link.beneath

    @property
    def root(self) -> Reason:
        """Return the root cause."""
        *_, last = self.chain()
        return last
