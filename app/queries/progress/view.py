"""The progress of a session, as its view shows it (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from app.domain.program import Program
from app.domain.routing import may_need_less
from app.domain.states import FINAL
from app.queries.presenters import node_progress, running_step, stops_of
from app.queries.progress.work_share import work_share
from app.store.session_reads import SessionRecords
from leadhand.models.views import Progress


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
