"""What a checker's end comes to: a verdict with its feedback, and the rule that found it."""

from __future__ import annotations

from typing import Literal

from app.outcomes import Outcome, Verdict
from app.reasons import Reason, ReasonCode
from app.texts import cut
from workers.agents.hearing import TEXT_LIMIT
from workers.endings import failed, stamped, why_not_started
from workers.sandbox import ProcessResult

_Rule = Literal["exit_code", "timeout", "not_started", "failed", "empty", "returned", "raised"]


def early_end(result: ProcessResult, *, who: str, timeout_s: float) -> Outcome | None:
    """The outcome of a checker that did not come to its own end; None where it did."""
    why = why_not_started(result)
    if why is not None:
        return not_started(f"{who} could not start: {why}", result)
    if result.cancelled:
        return failed(ReasonCode.CANCELLED, f"{who} was cancelled", result=result)
    if result.timed_out:
        text = f"{who} timed out after {timeout_s:g} seconds"
        return verdict_of("retry", text, "timeout", result, ReasonCode.TIMEOUT)
    return None


def not_started(text: str, result: ProcessResult) -> Outcome:
    return verdict_of("terminate", text, "not_started", result, ReasonCode.FAILED_STEP)


def verdict_of(
    verdict: Verdict,
    feedback: str,
    rule: _Rule | Literal["line", "json", "scan", "default"],
    result: ProcessResult,
    code: ReasonCode | None = None,
) -> Outcome:
    outcome = Outcome(
        word="succeeded",
        verdict=verdict,
        text=cut(feedback, TEXT_LIMIT),
        decided_by=rule,
        reason=None if code is None else Reason(code=code, text=feedback),
    )
    return stamped(outcome, result)
