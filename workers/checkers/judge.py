"""The body of a judge step: what the checks of an iteration together come to."""

from __future__ import annotations

from pydantic import JsonValue

from app.outcomes import Outcome
from app.verdicts import Judged, combine
from workers.body_task import BodyTask
from workers.inputs import JudgeInputs


def judge(task: BodyTask) -> Outcome:
    """One verdict for the iteration, with every check kept in the outcome's value."""
    given = JudgeInputs.model_validate(task.inputs)
    judgement = combine(given.rule, given.checks)
    checks: list[JsonValue] = [_kept(check) for check in judgement.checks]
    return Outcome(
        word="succeeded",
        verdict=judgement.verdict,
        text=judgement.feedback,
        value={"checks": checks},
        reason=judgement.reason,
    )


def _kept(check: Judged) -> dict[str, JsonValue]:
    dumped = check.model_dump(mode="json", exclude_none=True)
    return {"name": check.name, "verdict": check.verdict, **dumped}
