"""The outcomes of tool calls: a returned value, a declined call, a call that may not repeat."""

from __future__ import annotations

import json

from pydantic import JsonValue

from app.domain.outcomes import Outcome
from app.truncate import cut
from leadhand.models.reasons import ReasonCode
from workers.agents.output_parser import TEXT_LIMIT
from workers.processes.exit_outcome import failed_outcome
from workers.task.task import BodyTask


def outcome_of(value: JsonValue, *, printed: str = "") -> Outcome:
    """Builds the succeeded outcome of a tool that returned this value; if None, of its output."""
    if value is None:
        text = printed
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Outcome(word="succeeded", value=value, text=cut(text, TEXT_LIMIT))


def declined(outcome: Outcome, who: str) -> Outcome:
    """Marks the outcome as failed if the tool's result has ``"success": false``."""
    value = outcome.value
    if outcome.word != "succeeded" or not isinstance(value, dict):
        return outcome
    if value.get("success") is not False:
        return outcome
    failed = failed_outcome(
        ReasonCode.FAILED_STEP, f"{who} reported a failure: {why_declined(value)}", retryable=True
    )
    kept = {"value": value, "exit_code": outcome.exit_code, "spill": outcome.spill}
    return failed.model_copy(update=kept)


def why_declined(value: dict[str, JsonValue]) -> str:
    """Returns the error message in a tool's result, or the whole result as JSON."""
    message = value.get("error") or value.get("message")
    return cut(str(message) if message else json.dumps(value, ensure_ascii=False), TEXT_LIMIT)


def refuse_repeat(task: BodyTask, who: str, *, may_repeat: bool) -> Outcome | None:
    """Returns a failure if a lost attempt may have made the same call; None if it may be made.

    The step has no retries, so an earlier attempt can only have been lost.
    """
    if may_repeat or task.retries > 0 or task.attempt <= 1:
        return None
    text = (
        f"{who} may have run in the attempt that was lost, and is not called again: it is not"
        " marked idempotent and the step has no retries. Look at what it did, then resume"
    )
    return failed_outcome(ReasonCode.LOST, text)
