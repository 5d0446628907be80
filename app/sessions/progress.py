"""The progress of a session, as its view shows it, and the notes on it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from app.core.addresses import SessionRef
from app.core.program import Program
from app.core.records import StepRecord
from app.core.routing import may_need_less
from app.core.states import FINAL, SessionStatus
from app.fleet.flow_catalog import Catalog
from app.fleet.flow_tools import Source
from app.sessions.inbox import attention
from app.sessions.presenters import node_progress, running_step, stops_of
from app.sessions.questions import question_notes
from app.store.session_reads import SessionRecords
from app.store.store import Store
from leadhand.errors import FlowUnknown
from leadhand.models.views.fleet import WorkerView
from leadhand.models.views.session import Progress

#: The least share from which the time left is estimated, as in `lib/steps/shares.lua`.
_LEAST = 0.1
_UNAFFECTED = "the session keeps what it was started with"


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


class Notes:
    """Writes notes; reads more only for what a session has."""

    def __init__(self, store: Store, catalog_of: Callable[[str, bool], Catalog]) -> None:
        self._store = store
        self._catalog_of = catalog_of

    def attention(
        self,
        ref: SessionRef,
        fields: Mapping[str, str],
        program: Program | None,
        records: SessionRecords,
    ) -> list[str]:
        """Returns why a person should read a session's inbox; empty without unread messages."""
        if int(fields.get("unread", 0)) == 0 or program is None:
            return []
        return attention(self._store, ref, fields, program, records.turns, records.runs)

    def of(
        self,
        ref: SessionRef,
        fields: Mapping[str, str],
        workers: Sequence[WorkerView],
        records: SessionRecords,
    ) -> list[str]:
        """Returns notes for users: changed flows, missing workers, locks, questions."""
        if fields["status"] in FINAL:
            return []
        catalog = self._catalog_of(fields.get("defined_in", ""), bool(fields.get("free")))
        notes = changes(catalog, fields.get("source", ""))
        children = pinned_children(fields.get("source", ""))
        notes += outdated_children(ref.id, children, self._store.steps(ref, list(children)))
        if fields["status"] == SessionStatus.ACTIVE:
            notes += _place_notes(ref, fields["place"], workers)
            parked, is_plan = records.steps_of(records.parked), fields["kind"] == "plan"
            notes += self._lock_notes(records.steps_of(records.live))
            notes += question_notes(ref.id, parked, is_plan=is_plan)
        return notes

    def _lock_notes(self, records: Mapping[str, StepRecord]) -> list[str]:
        """Notes for locks that these steps wait for, with their holders."""
        notes = []
        for address, record in sorted(records.items()):
            if record.state == "ready" and record.blocked:
                holders = [
                    who.partition("|")[0] + (f" as {lock}" if lock != record.blocked else "")
                    for lock, who in self._store.fleet().overlapping("holds", record.blocked)
                ]
                held = f", held by {', '.join(dict.fromkeys(holders))}" if holders else ""
                notes.append(f"{address} waits for {record.blocked}{held}")
        return notes


def _place_notes(ref: SessionRef, place: str, workers: Sequence[WorkerView]) -> list[str]:
    if not place or any(worker.place == place for worker in workers):
        return []
    move = f"leadhand rehome {ref.id} PLACE"
    return [f"place {place!r} has no worker; start one there, or: {move}"]


def changes(catalog: Catalog, source: str) -> list[str]:
    """Returns a note if the flow's file changed since the session copied it; else an empty list."""
    if not source or not catalog.folders:
        return []
    began = Source.model_validate_json(source)
    try:
        now = catalog.one(began.flow)
    except FlowUnknown:
        return [f"flow {began.flow!r} was removed since; {_UNAFFECTED}"]
    if now.error is not None:
        return [f"flow {began.flow!r} has changed since and is broken: {now.error}; {_UNAFFECTED}"]
    if now.hash == began.hash:
        return []
    return [f"flow {began.flow!r} has changed since; {_UNAFFECTED}, unless it is resumed --as new"]


def pinned_children(source: str) -> dict[str, str]:
    """Returns the steps whose child sessions kept the old flow when the session adopted another."""
    return Source.model_validate_json(source).kept if source else {}


def outdated_children(
    id_: str, children: Mapping[str, str], records: Mapping[str, StepRecord]
) -> list[str]:
    """Returns a text for each step that still waits for a child session running an old flow."""
    fix = f"to restart it, stop, and `leadhand resume {id_} --as new --after` a step before it"
    return [
        f"{address} waits for {child}, which runs the old flow; {fix}"
        for address, child in sorted(children.items())
        if address in records and (records[address].parked or {}).get("child") == child
    ]
