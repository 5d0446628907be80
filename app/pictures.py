"""Single steps and nodes as they are shown: a program's node and its record become a view."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from datetime import UTC, datetime

from app.decide import queue_of
from app.outcomes import MICROS
from app.program import Loop, Program, Step, block_of, iteration_of, path_of, turn_of
from app.records import StepRecord, TurnRecord
from app.views import BudgetLine, Counters, DiffView, NodeProgress, RunningStep, StepView

#: The counters that are shown as they are.
COUNTED = ("steps", "iterations", "attempts_failed", "attempts_lost", "phase_retries", "stops")
#: The limits as documents name them -> the counter, and how many of its units make one of theirs.
BUDGETS = {
    "iterations": ("iterations", 1),
    "steps": ("steps", 1),
    "wall_s": ("wall_ms", 1000),
    "cost_usd": ("cost_micros", MICROS),
    "tokens": ("tokens", 1),
    "stage_stops": ("stage_stops", 1),
    "stops": ("stops", 1),
}

#: Before the name of an outermost loop: the counter of its stops.
_STOPS = "stops/"


def iso(at_ms: int) -> str:
    """A time in ms as ISO 8601 in UTC.

    >>> iso(0)
    '1970-01-01T00:00:00.000+00:00'
    """
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def diff_view(address: str, packed: str) -> DiffView:
    """What a doer changed, out of the form in which it is kept."""
    told = json.loads(gzip.decompress(base64.b64decode(packed)))
    loop = path_of(turn_of(block_of(address)))
    return DiffView(address=address, loop=loop, iteration=iteration_of(address), **told)


def node_progress(node: Step | Loop, turn: TurnRecord | None, stops: int = 0) -> NodeProgress:
    """An outermost node, how far its newest run is, and how many ended without acceptance."""
    return NodeProgress(
        node=node.id,
        label=node.label or node.id,
        state=turn.state if turn else "pending",
        iteration=turn.iteration if turn else 0,
        max_iterations=turn.max if turn else (node.max_iterations if isinstance(node, Loop) else 0),
        verdict=turn.verdict if turn else None,
        run=turn.run if turn else 1,
        attempts_failed=turn.attempts_failed if turn else 0,
        attempts_lost=turn.attempts_lost if turn else 0,
        stops=stops,
    )


def counters(fields: Mapping[str, str]) -> Counters:
    """What a session's own hash counted."""
    counted = {name: int(fields.get(name, 0)) for name in COUNTED}
    return Counters(
        **counted,
        cost_usd=int(fields.get("cost_micros", 0)) / MICROS,
        input_tokens=int(fields.get("tokens_in", 0)),
        output_tokens=int(fields.get("tokens_out", 0)),
    )


def stops_of(fields: Mapping[str, str], node: str) -> int:
    """How many runs of an outermost loop ended without acceptance."""
    return int(fields.get(_STOPS + node, 0))


def budget_lines(fields: Mapping[str, str], now_ms: int) -> dict[str, BudgetLine]:
    """A session's limits, and how much of each is used."""
    limits: dict[str, int] = json.loads(fields.get("budget") or "{}")
    used = {
        name: int(fields.get(name, 0)) for name in ("iterations", "steps", "cost_micros", "stops")
    }
    used["tokens"] = int(fields.get("tokens_in", 0)) + int(fields.get("tokens_out", 0))
    of_stages = (int(value) for name, value in fields.items() if name.startswith(_STOPS))
    used["stage_stops"] = max(of_stages, default=0)
    if "wall_ms" in limits:
        left = int(fields["until"]) - now_ms if "until" in fields else int(fields.get("left", 0))
        used["wall_ms"] = limits["wall_ms"] - max(0, left)
    return {
        name: BudgetLine(used=used[counter] / unit, limit=limits[counter] / unit)
        for name, (counter, unit) in BUDGETS.items()
        if counter in limits
    }


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
    """A step that became ready once; of one that its flow's file no longer has, what is known."""
    step = program.step_or_none(address)
    queue = queue_of(step) if step is not None else ""
    name = path_of(address).rpartition("/")[2]
    return StepView(
        address=address,
        node=path_of(address),
        action=step.action.value if step is not None else "gone",
        label=(step.label if step is not None else None) or name,
        state=record.state,
        attempt=record.attempt,
        lost=record.lost,
        failed=record.failed,
        worker=record.owner,
        queue=f"{queue}@{place}" if place and queue else queue,
        started_at=iso(record.since) if record.since else None,
        ended_at=iso(record.ended) if record.ended else None,
        verdict=record.verdict,
        reason=record.reason,
        cost_usd=record.cost_micros / MICROS,
        input_tokens=record.tokens_in,
        output_tokens=record.tokens_out,
    )
