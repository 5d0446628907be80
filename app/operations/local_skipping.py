"""Tells whether a claimed step is skipped, and with which outcome (pure)."""

from __future__ import annotations

from app.domain.outcomes import Outcome
from app.operations.attempts import Work
from leadhand.models.reasons import Reason, ReasonCode

_FALSY = (None, False, "", 0, "false", "no", "0")


def is_skipped(work: Work) -> bool:
    """Whether to skip a step: its condition is false, or a step it needs was skipped."""
    if "when" not in work.inputs:
        return False
    value = work.inputs["when"]
    return value in _FALSY or value == [] or value == {}


def skipped_outcome(work: Work) -> Outcome:
    """Returns the outcome of a skipped step, with the reason if its template has one."""
    why = work.inputs.get("skipped")
    if why is None:
        return Outcome(word="skipped")
    reason = Reason(code=ReasonCode.CONDITION, text=str(why), at=work.grant.address)
    return Outcome(word="skipped", reason=reason)
