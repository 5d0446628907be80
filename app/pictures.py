"""Single steps and nodes as they are shown: a program's node and its record become a view."""

from __future__ import annotations

from datetime import UTC, datetime

from app.decide import queue_of
from app.program import Loop, Program, Step, path_of
from app.records import StepRecord, TurnRecord
from app.views import NodeProgress, RunningStep, StepView


def iso(at_ms: int) -> str:
    """A time in ms as ISO 8601 in UTC.

    >>> iso(0)
    '1970-01-01T00:00:00.000+00:00'
    """
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def node_progress(node: Step | Loop, turn: TurnRecord | None) -> NodeProgress:
    """An outermost node, and how far its newest run is."""
    return NodeProgress(
        node=node.id,
        label=node.label or node.id,
        state=turn.state if turn else "pending",
        iteration=turn.iteration if turn else 0,
        max_iterations=turn.max if turn else (node.max_iterations if isinstance(node, Loop) else 0),
        verdict=turn.verdict if turn else None,
    )


def running_step(program: Program, address: str, record: StepRecord) -> RunningStep:
    """A step that a worker has."""
    step = program.step(address)
    return RunningStep(
        address=address,
        action=step.action.value,
        label=step.label or step.id,
        since=iso(record.since) if record.since else None,
        attempt=record.attempt,
        worker=record.owner,
    )


def step_view(program: Program, address: str, record: StepRecord, place: str) -> StepView:
    """A step that became ready once."""
    step = program.step(address)
    queue = queue_of(step)
    return StepView(
        address=address,
        node=path_of(address),
        action=step.action.value,
        label=step.label or step.id,
        state=record.state,
        attempt=record.attempt,
        lost=record.lost,
        failed=record.failed,
        worker=record.owner,
        queue=f"{queue}@{place}" if place else queue,
        started_at=iso(record.since) if record.since else None,
        ended_at=iso(record.ended) if record.ended else None,
        verdict=record.verdict,
        reason=record.reason,
    )
