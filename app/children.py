"""Pure: what a child session's end means to the step that waits for it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.outcomes import Outcome
from app.reasons import Reason, ReasonCode
from app.states import SessionStatus


def gone(child: str) -> Outcome:
    """The waiting step's outcome where its child is no more, and nobody can say how it ended."""
    text = f"child session {child} was deleted before it ended"
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
    return Outcome(word="failed", text=text, reason=reason, retryable=False)


def outcome_of_child(child: str, fields: Mapping[str, str]) -> Outcome:
    """The waiting step's outcome: done where the child was, else failed with the child's reason."""
    status = fields["status"]
    text = f"child session {child} is {status}"
    value: dict[str, JsonValue] = {
        "session": child, "name": fields.get("name", ""), "status": status,
    }  # fmt: skip
    if status == SessionStatus.COMPLETED:
        return Outcome(word="succeeded", text=text, value=value)
    beneath = Reason.model_validate_json(fields["reason"]) if fields.get("reason") else None
    if beneath is not None:
        value["why"] = list(beneath.chain())[-1].text
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text, beneath=beneath)
    return Outcome(word="failed", text=text, value=value, reason=reason, retryable=False)
