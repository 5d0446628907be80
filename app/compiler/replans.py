"""Compiles the sessions that ask a team lead what to do about a task that failed."""

from __future__ import annotations

import json

from pydantic import JsonValue

from app.compiler.plan import draft_step
from app.domain.program import Program
from app.domain.references import literal
from leadhand.models.plans import PlanDocument

#: The step whose outcome is the proposal.
REPLAN_STEP = "replan"


def replan_program(document: PlanDocument, task: str, run: int, reason: str) -> Program:
    """Builds the program that asks a plan's team lead how to edit the plan after a task failed."""
    failed: dict[str, JsonValue] = {"task": task, "run": run, "reason": reason}
    step = draft_step(document, REPLAN_STEP).model_copy(
        update={"timeout_s": min(document.timeout_s, document.replan_timeout_s)}
    )
    inputs = {**step.inputs, "failed": literal(json.dumps(failed))}
    step = step.model_copy(update={"inputs": inputs})
    return Program(name=f"replan/{task}", body=(step,))
