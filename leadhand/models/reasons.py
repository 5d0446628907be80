"""Reasons for the end of a step, loop or session: a code, a text and the underlying reason."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from leadhand.models.views.view import View


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
