"""Reads what a team lead proposes about a task that failed."""

from __future__ import annotations

import json

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.plan_errors import PlanRefused
from app.operations.planning.edits import edit_arguments
from leadhand.models.plans import PlanOperation

_OPERATIONS = TypeAdapter(tuple[PlanOperation, ...])


def proposed_edit(outcome: str, session: str, checkers: list[str]) -> dict[str, JsonValue]:
    """Extracts a team lead's proposed plan edit from a step's outcome, or why there is none.

    The edit consists of Lua arguments. It is checked again, because an outcome is not signed. An
    edit has no commands.
    """
    value = json.loads(outcome).get("value")
    value = value if isinstance(value, dict) else {}
    why = str(value.get("why") or "")[:_LONGEST] or None
    try:
        operations = _OPERATIONS.validate_python(value.get("operations") or ())
        arguments = edit_arguments(session, operations, checkers)
    except (ValidationError, PlanRefused) as error:
        return {"why": f"its answer is no edit of the plan: {error}"[:_LONGEST]}
    if not arguments:
        return {"why": why or "it sees no other way"}
    dumped = [one.model_dump(mode="json", exclude_unset=True) for one in operations]
    return {"operations": arguments, "edit": json.dumps(dumped), "why": why}


#: Characters of a reason that are kept.
_LONGEST = 2_000
