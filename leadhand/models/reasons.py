"""The codes of reasons for the end of a step, loop or session."""

from __future__ import annotations

from enum import StrEnum


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
