"""What several checkers together make of a doer's work: one verdict, by the rule of the loop."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from app.outcomes import Gate, Outcome, Verdict
from app.reasons import Reason, ReasonCode
from app.texts import cut
from leadhand.documents import Rule

#: Characters of one checker's feedback that the ledger keeps.
CHECK_LIMIT = 8_000
#: Characters of the combined feedback that the next iteration is shown.
FEEDBACK_LIMIT = 16_000


class Check(BaseModel):
    """One checker and what came of it; no outcome where its attempts were lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    outcome: Outcome | None = None


class Judged(BaseModel):
    """One checker as the ledger keeps it; no verdict where it gave none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    verdict: Verdict | None = None
    feedback: str = ""
    exit_code: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    decided_by: str | None = None
    reason: Reason | None = None
    #: Of a rubric: which version judged, how its gates went, and on which state of the folder.
    rubric: str | None = None
    gates: tuple[Gate, ...] | None = None
    digest: str | None = None


class Judgement(BaseModel):
    """What the iteration comes to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict
    feedback: str
    reason: Reason | None
    checks: tuple[Judged, ...]


def combine(rule: Rule, checks: Sequence[Check]) -> Judgement:
    """The verdict of all checks: terminate wins, a lost check does not accept."""
    judged = tuple(_judged(check) for check in checks)
    verdict, reason = _decide(_needed(rule, len(judged)), judged)
    return Judgement(
        verdict=verdict, feedback=_feedback(verdict, judged), reason=reason, checks=judged
    )


def _needed(rule: Rule, count: int) -> int:
    """How many must accept; never more than there are."""
    if rule == "all":
        return count
    return min(1 if rule == "any" else rule, count)


def _decide(needed: int, judged: Sequence[Judged]) -> tuple[Verdict, Reason | None]:
    for check in judged:
        if check.verdict == "terminate":
            text = f"checker {check.name!r} said terminate"
            return "terminate", Reason(code=ReasonCode.TERMINATED, text=text, beneath=check.reason)
    if sum(check.verdict == "accept" for check in judged) >= needed:
        return "accept", None
    lost = [check for check in judged if check.verdict is None]
    if len(judged) - len(lost) < needed:
        names = ", ".join(repr(check.name) for check in lost)
        text = f"no word from {names}, and without it the rule cannot be met"
        return "terminate", Reason(code=ReasonCode.CHECKER_DOWN, text=text, beneath=lost[0].reason)
    return "retry", None


def _judged(check: Check) -> Judged:
    outcome = check.outcome
    if outcome is None:
        return Judged(name=check.name, feedback="The checker was lost.", reason=_LOST)
    verdict = _verdict(outcome)
    text = outcome.text or (outcome.reason.text if outcome.reason else "")
    judged = Judged(
        name=check.name,
        verdict=verdict,
        feedback=cut(
            text or ("The checker gave no verdict." if verdict is None else ""), CHECK_LIMIT
        ),
        exit_code=outcome.exit_code,
        started_ms=outcome.started_ms,
        ended_ms=outcome.ended_ms,
        decided_by=outcome.decided_by,
        reason=outcome.reason,
    )
    return _by_rubric(judged, outcome)


def _by_rubric(judged: Judged, outcome: Outcome) -> Judged:
    """With what a rubric's check says of itself."""
    ruling = outcome.ruling
    if ruling is None:
        return judged
    told = {"rubric": ruling.rubric, "gates": ruling.gates, "digest": ruling.digest}
    return judged.model_copy(update=told)


def _verdict(outcome: Outcome) -> Verdict | None:
    """The checker's word; its timeout asks for another try, any other silence is no word."""
    if outcome.verdict is not None:
        return outcome.verdict
    timed_out = outcome.reason is not None and outcome.reason.code is ReasonCode.TIMEOUT
    return "retry" if timed_out else None


def _feedback(verdict: Verdict, judged: Sequence[Judged]) -> str:
    """What the next reader is told: the refusals, or on accept what the accepting ones said."""
    if len(judged) == 1:
        return judged[0].feedback
    told = [check for check in judged if (check.verdict == "accept") == (verdict == "accept")]
    told = [check for check in told if check.feedback or verdict != "accept"]
    if not told:
        return ""
    share = FEEDBACK_LIMIT // len(told)
    return "\n\n".join(cut(_section(check), share - 2) for check in told)


def _section(check: Judged) -> str:
    return f"## {check.name} ({check.verdict or 'lost'})\n\n{check.feedback}".rstrip()


_LOST = Reason(code=ReasonCode.LOST, text="every attempt at the checker was lost")
