"""The progress of a session, as its view shows it (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from app.domain.program import Program
from app.domain.routing import may_need_less
from app.domain.states import FINAL, SessionStatus
from app.queries.presenters import node_progress, running_step, stops_of
from app.store.session_reads import SessionRecords
from leadhand.models.views.session import Progress

#: The least share from which the time left is estimated, as in `lib/steps/shares.lua`.
_LEAST = 0.1


def progress_of(program: Program, fields: Mapping[str, str], records: SessionRecords) -> Progress:
    """Returns a session's progress: top-level node states, running steps, share of work done."""
    nodes = [
        node_progress(
            node,
            records.turns.get(node.id),
            run=records.runs.get(node.id, 1),
            stops=stops_of(fields, node.id),
        )
        for node in program.body
    ]
    running = records.steps_of(records.running)
    return Progress(
        nodes=nodes,
        running=[running_step(program, a, r) for a, r in sorted(running.items())],
        **work_share(fields, records.now_ms)._asdict(),
        at_most=may_need_less(program) and fields["status"] not in FINAL,
    )


class WorkShare(NamedTuple):
    """The share from 0 to 1, and the seconds of the work so far and of the rest."""

    share: float | None = None
    elapsed_s: float | None = None
    left_s: float | None = None


def work_share(fields: Mapping[str, str], now_ms: int) -> WorkShare:
    """Computes which share of a session's work is done, and estimates the time left.

    >>> active = {"status": "active", "expected": "40", "covered": "10", "began": "0"}
    >>> work_share(active, 5_000)
    WorkShare(share=0.25, elapsed_s=5.0, left_s=15.0)
    >>> work_share({**active, "covered": "1"}, 5_000).left_s is None
    True
    >>> work_share({**active, "status": "completed", "paused": "9000"}, 50_000)
    WorkShare(share=1.0, elapsed_s=9.0, left_s=None)
    """
    expected = int(fields.get("expected") or 0)
    if expected <= 0:
        return WorkShare()
    status = fields["status"]
    runs = status in (SessionStatus.ACTIVE, SessionStatus.STOPPING)
    until = now_ms if runs else int(fields.get("paused") or now_ms)
    elapsed_s = max(0, until - int(fields["began"])) / 1000
    if status == SessionStatus.COMPLETED:
        return WorkShare(1.0, elapsed_s)
    done = max(0.0, min(1.0, int(fields.get("covered") or 0) / expected))
    left_s = elapsed_s * (1 - done) / done if done >= _LEAST and runs else None
    return WorkShare(int(done * 10_000) / 10_000, elapsed_s, left_s and round(left_s, 1))
