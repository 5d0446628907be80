"""The body of a break or decide step: whether the loop around it ends here, or yes or no."""

from __future__ import annotations

import threading

from app.outcomes import Outcome
from app.program import Action
from app.reasons import Reason, ReasonCode
from app.texts import cut
from workers.agents.answers import TEXT_LIMIT
from workers.body_task import BodyTask
from workers.endings import failed, failure, stamped, why_not_started
from workers.inputs import BreakInputs
from workers.sandbox import run


def decide(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Accept where the loop ends or the answer is yes, retry where it goes on or it is no."""
    given = BreakInputs.model_validate(task.inputs)
    if given.command is not None:
        return _by_command(task, given.command, cancel)
    answer = given.answer.strip().lower()
    if answer not in ("yes", "no"):
        text = f"the answer is {cut(given.answer, 200)!r}; it must be 'yes' or 'no'"
        return failed(ReasonCode.INVALID_ANSWER, text)
    return _word(task, answer == given.break_on.strip().lower(), text=given.answer)


def _by_command(task: BodyTask, line: str, cancel: threading.Event) -> Outcome:
    result = run(task.command(line), cancel)
    unusable = result.cancelled or result.timed_out or why_not_started(result)
    bad = failure(result, who=f"{task.action.value} command", timeout_s=task.timeout_s)
    if unusable and bad is not None:
        return bad
    said = cut(result.stdout.text.strip(), TEXT_LIMIT)
    return stamped(_word(task, result.exit_code == 0, text=said), result)


def _word(task: BodyTask, yes: bool, *, text: str) -> Outcome:
    if not yes or task.action is Action.DECIDE:
        return Outcome(word="succeeded", verdict="accept" if yes else "retry", text=text)
    reason = Reason(code=ReasonCode.BREAK, text="the break's condition was met")
    return Outcome(word="succeeded", verdict="accept", text=text, reason=reason)
