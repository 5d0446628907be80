"""Notes of a session's view for users, and the reasons for which it needs a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.catalog.flow_catalog import Catalog
from app.catalog.source import Source
from app.domain.ids import SessionRef
from app.domain.program import Program
from app.domain.records import StepRecord
from app.domain.states import FINAL, SessionStatus
from app.queries.inbox import attention
from app.queries.question_texts import question_notes
from app.store.session_reads import SessionRecords
from app.store.store import Store
from leadhand.errors import FlowUnknown
from leadhand.models.views.fleet import WorkerView

_UNAFFECTED = "the session keeps what it was started with"


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
