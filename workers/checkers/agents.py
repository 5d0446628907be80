"""What an agent's answer comes to where it judges."""

from __future__ import annotations

from app.outcomes import Outcome
from leadhand.verdicts import parse_verdict
from workers.agents.answers import Answer
from workers.checkers.sentences import early_end, verdict_of


def judged(name: str, answer: Answer, timeout_s: float) -> Outcome:
    """The verdict that an agent's answer is."""
    who = f"Checker agent {name!r}"
    early = early_end(answer.result, who=who, timeout_s=timeout_s)
    if early is not None:
        return early
    if answer.failure is not None and answer.failure.busy is not None:
        return answer.failure
    if answer.failure is not None:
        why = answer.failure.reason.text if answer.failure.reason else "it failed"
        return verdict_of("retry", f"The checker failed: {why}", "failed", answer.result)
    if not answer.text:
        return verdict_of("retry", f"{who} produced no output", "empty", answer.result)
    parsed = parse_verdict(answer.text)
    return verdict_of(parsed.verdict, parsed.feedback, parsed.decided_by, answer.result)
