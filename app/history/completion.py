"""Decides whether a node's successors may start (pure)."""

from __future__ import annotations

from app.domain.program import Loop, Step
from app.domain.records import StepRecord, TurnRecord
from app.domain.routing import is_critical


def turn_is_done(node: Step | Loop, turn: TurnRecord) -> bool:
    """Whether a loop or for_each has ended so that its successors may start."""
    if turn.state != "closed":
        return False
    if turn.verdict == "skipped":
        return True
    if isinstance(node, Loop) and node.on_fail == "continue":
        return turn.verdict in ("accept", "terminate", "max_iterations")
    return turn.verdict == "accept"


def step_is_done(node: Step | Loop, step: StepRecord | None) -> bool:
    """Whether a step's successors may start: it succeeded, was skipped, or was not critical."""
    assert step is not None
    assert isinstance(node, Step)
    if (
        step.last is True
    ):  # the end of the session has started it, before what it comes after was done
        return False
    if step.state == "failed":
        return not is_critical(node)
    return step.state in ("succeeded", "skipped") and step.verdict != "terminate"
