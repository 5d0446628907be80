"""Runs judge steps: combines the verdicts by the rule, and joins the feedback for the next doer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, JsonValue

from app.core.outcomes import BaselineWord, CheckRun, Gate, Outcome, Verdict
from app.truncate import cut
from leadhand.models.documents import Rule
from leadhand.models.verdicts import Counts, Reason, ReasonCode
from workers.prompts import FEEDBACK_LIMIT
from workers.task import UNCLEAR, Check, JudgeInputs

#: Characters of one checker's feedback in the ledger.
CHECK_LIMIT = 8_000
#: Begins the feedback of an iteration whose work no checker refused.
_NOT_JUDGED = "The check ended before it judged the work: this is no verdict on the work.\n\n"


class Judged(BaseModel):
    """One checker's entry in the ledger; without a verdict if it gave none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    verdict: Verdict | None = None
    feedback: str = ""
    #: The checker's answer as it was given, where the feedback was parsed from it.
    raw: str | None = None
    exit_code: int | None = None
    #: The tests that it ran; None if they are not known.
    counts: Counts | None = None
    #: Of a command that was run again: its runs, and the tests that flipped.
    runs: tuple[CheckRun, ...] | None = None
    flaky: tuple[str, ...] | None = None
    #: Of a command: the tests in quarantine that failed, and how it ended before the work.
    quarantined: tuple[str, ...] | None = None
    baseline: BaselineWord | None = None
    #: `isolated` or `clean`; None if it ran beside others.
    ran: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    decided_by: str | None = None
    reason: Reason | None = None
    #: Of a rubric: its version, and the results of its gates.
    rubric: str | None = None
    gates: tuple[Gate, ...] | None = None

    @property
    def timed_out(self) -> bool:
        """Whether the check's verdict is retry only because it timed out."""
        late = self.reason is not None and self.reason.code is ReasonCode.TIMEOUT
        return late and self.verdict == "retry"

    @property
    def is_skipped(self) -> bool:
        """Whether a user skipped the check; it then does not count for the verdict."""
        return self.reason is not None and self.reason.code is ReasonCode.USER_SKIP

    @property
    def is_flaky(self) -> bool:
        """Whether the check abstains, since its runs on the same work differ."""
        return self.flaky is not None

    @property
    def entry(self) -> JsonValue:
        """Return the check as JSON for the ledger; `verdict` and `counts` are always present."""
        dumped = self.model_dump(mode="json", exclude_none=True)
        return {"name": self.name, "verdict": self.verdict, "counts": None, **dumped}


class Judgement(BaseModel):
    """The verdict of an iteration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict
    feedback: str
    reason: Reason | None
    checks: tuple[Judged, ...]
    #: `user_skip` if users skipped all checks: then only their word accepts.
    decided_by: str | None = None
    #: Whether a checker has judged the work; not if all that did not accept timed out.
    is_on_work: bool = True


def judge(inputs: Mapping[str, JsonValue]) -> Outcome:
    """Runs a judge step: returns the iteration's verdict, with every check in its value."""
    given = JudgeInputs.model_validate(inputs)
    judgement = combine(given.rule, given.checks, given.unclear_before)
    return Outcome(
        word="succeeded",
        verdict=judgement.verdict,
        text=judgement.feedback,
        value={"checks": [check.entry for check in judgement.checks]},
        judged=None if judgement.is_on_work else False,
        reason=judgement.reason,
        decided_by=judgement.decided_by,
        warning=_warning(judgement),
    )


def _warning(judgement: Judgement) -> str | None:
    if judgement.decided_by is not None:
        return judgement.feedback
    flaky = [check for check in judgement.checks if check.is_flaky]
    first = [f"{check.name}: {check.feedback.splitlines()[0]}" for check in flaky]
    return "\n".join(first) or None


def combine(rule: Rule, checks: Sequence[Check], unclear_before: Collection[str] = ()) -> Judgement:
    """Combines the verdicts of all checks to one: terminate wins, a lost check does not accept.

    `unclear_before` names the checkers whose answer in the previous iteration was no verdict.
    """
    judged = tuple(_judged(check) for check in checks)
    asked = tuple(check for check in judged if not check.is_skipped)
    if judged and not asked:
        return _accept_unjudged(judged)
    # Flaky checks abstain; if no other is left, they refuse.
    counted = tuple(check for check in asked if not check.is_flaky) or asked
    verdict, reason = _decide(_needed(rule, len(counted)), counted, unclear_before)
    shown = _shown(verdict, judged)
    is_on_work = not (shown and all(check.timed_out for check in shown))
    first = "" if is_on_work else _NOT_JUDGED
    feedback = first + _feedback(shown, FEEDBACK_LIMIT - len(first), is_only=len(judged) == 1)
    return Judgement(
        verdict=verdict, feedback=feedback, reason=reason, checks=judged, is_on_work=is_on_work
    )


def _accept_unjudged(skipped: tuple[Judged, ...]) -> Judgement:
    """Accepts work that no check judged, on the word of those who skipped the checks."""
    said = "; ".join(f"{check.name!r} was {check.feedback}" for check in skipped)
    text = cut(f"no checker judged the work: {said}", FEEDBACK_LIMIT)
    return Judgement(
        verdict="accept",
        feedback=text,
        reason=Reason(code=ReasonCode.USER_SKIP, text=text),
        checks=skipped,
        decided_by=ReasonCode.USER_SKIP,
    )


def _needed(rule: Rule, count: int) -> int:
    """How many checks must accept, at most all of them."""
    if rule == "all":
        return count
    return min(1 if rule == "any" else rule, count)


def _decide(
    needed: int, judged: Sequence[Judged], unclear_before: Collection[str]
) -> tuple[Verdict, Reason | None]:
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
    unclear = [one for one in judged if one.decided_by == UNCLEAR and one.name in unclear_before]
    if unclear and len(judged) - len(lost) - len(unclear) < needed:
        names = ", ".join(repr(one.name) for one in unclear)
        text = f"no verdict in the answers of {names} in two iterations in a row"
        return "terminate", Reason(code=ReasonCode.JUDGE_UNCLEAR, text=text)
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
        raw=None if outcome.raw is None else cut(outcome.raw, CHECK_LIMIT),
        exit_code=outcome.exit_code,
        counts=outcome.counts,
        runs=outcome.runs,
        flaky=outcome.flaky,
        quarantined=outcome.quarantined,
        baseline=outcome.baseline,
        ran=outcome.ran,
        started_ms=outcome.started_ms,
        ended_ms=outcome.ended_ms,
        decided_by=outcome.decided_by,
        reason=outcome.reason,
    )
    if judged.is_skipped:
        judged = judged.model_copy(update={"decided_by": ReasonCode.USER_SKIP.value})
    return _with_ruling(judged, outcome)


def _with_ruling(judged: Judged, outcome: Outcome) -> Judged:
    """Adds the version and gates of a rubric."""
    ruling = outcome.ruling
    if ruling is None:
        return judged
    return judged.model_copy(update={"rubric": ruling.rubric, "gates": ruling.gates})


def _verdict(outcome: Outcome) -> Verdict | None:
    """Returns the checker's verdict, retry for a timeout, None for one that was lost."""
    if outcome.verdict is not None:
        return outcome.verdict
    timed_out = outcome.reason is not None and outcome.reason.code is ReasonCode.TIMEOUT
    return "retry" if timed_out else None


def _shown(verdict: Verdict, judged: Sequence[Judged]) -> Sequence[Judged]:
    """The checks with feedback: the refusing ones, or the accepting ones on accept."""
    if len(judged) == 1:
        return judged
    shown = [check for check in judged if (check.verdict == "accept") == (verdict == "accept")]
    return [check for check in shown if check.feedback or verdict != "accept"]


def _feedback(shown: Sequence[Judged], limit: int, *, is_only: bool) -> str:
    """Joins the feedback of these checks, each under its name unless it is the only one."""
    if is_only:
        return cut(shown[0].feedback, limit)
    share = limit // max(len(shown), 1)
    return "\n\n".join(cut(_section(check), share - 2) for check in shown)


def _section(check: Judged) -> str:
    if check.is_skipped:
        how: str = "skipped"
    elif check.is_flaky:
        how = "flaky: no verdict on the work"
    else:
        how = "timed out: no verdict on the work" if check.timed_out else check.verdict or "lost"
    return f"## {check.name} ({how})\n\n{check.feedback}".rstrip()


_LOST = Reason(code=ReasonCode.LOST, text="every attempt at the checker was lost")
