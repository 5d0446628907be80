"""Pure: what counts as done, for those who go on from there."""

from __future__ import annotations

from app.decide import is_critical
from app.program import Loop, Step
from app.records import StepRecord, TurnRecord


def turn_is_done(node: Step | Loop, turn: TurnRecord) -> bool:
    """Whether what comes after a loop or a for_each may begin."""
    if turn.state != "closed":
        return False
    if turn.verdict == "skipped":
        return True
    if isinstance(node, Loop) and node.on_fail == "continue":
        return turn.verdict in ("accept", "terminate", "max_iterations")
    return turn.verdict == "accept"


def step_is_done(node: Step | Loop, step: StepRecord | None) -> bool:
    """Whether what comes after a step may begin."""
    assert step is not None
    assert isinstance(node, Step)
    if step.state == "failed":
        return not is_critical(node)
    return step.state in ("succeeded", "skipped") and step.verdict != "terminate"
