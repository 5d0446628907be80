"""Why something ended: a word of a closed set, a text, and the reason beneath it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from pydantic import BaseModel, ConfigDict


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
    USER_STOP = "user_stop"
    ABORTED = "aborted"
    PARENT_ENDED = "parent_ended"


class Reason(BaseModel):
    """One link of the chain that leads from an end down to its root cause."""

    model_config = ConfigDict(frozen=True)

    code: ReasonCode
    text: str = ""
    #: The address of the step or loop that this reason speaks of.
    at: str | None = None
    beneath: Reason | None = None

    def chain(self) -> Iterator[Reason]:
        """This reason and all beneath it, the root cause last."""
        link: Reason | None = self
        while link is not None:
            yield link
            link = link.beneath

    @property
    def root(self) -> Reason:
        """The root cause."""
        *_, last = self.chain()
        return last
