"""Read-only queries for sessions: views, results, steps, ledger, transcript, events, export."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from pydantic import JsonValue

from app.core.addresses import SessionRef, iso
from app.core.artifacts import ArtifactSource
from app.core.program import Action, Loop, Program, Step
from app.core.records import TurnRecord
from app.core.routing import step_is_done, turn_is_done
from app.core.states import ENDED, SessionStatus
from app.fleet.flow_catalog import Catalog
from app.fleet.overview import Fleet
from app.fleet.troubles import Troubles, troubles_at
from app.history.ledger import nearest_of
from app.history.records import Snapshot, result_of_turn
from app.history.transcript import as_markdown
from app.history.values import newest_text, text_of_flow
from app.plans.phases import with_phase
from app.plans.view import exported_plan, spawned_by
from app.redaction import without_secrets
from app.sessions.evidence import diffs_page, evidence_of
from app.sessions.inbox import message_view, read_messages
from app.sessions.listing import Found, Listing, encode_cursor, number_of
from app.sessions.presenters import (
    about_loop,
    budget_lines,
    counters,
    made_by,
    noted,
    own_folder_view,
    reason_of,
    shown_status,
    status_of,
)
from app.sessions.progress import Notes, progress_of
from app.sessions.results import WHOLE, graph_results, result_of
from app.sessions.tree import steps_page
from app.shared import exported_values
from app.store.errors import read_undamaged
from app.store.session_reads import CreatedSession, SessionRecords
from app.store.store import Store
from leadhand.contract.sessions import SessionsWanted
from leadhand.errors import ProgramNewer, SessionStillRuns, SessionUnknown
from leadhand.models.views.fleet import WorkerView
from leadhand.models.views.result import ExportView, LedgerEntry, ResultView
from leadhand.models.views.session import Progress, SessionView
from leadhand.models.views.step import (
    DiffsPage,
    DiffView,
    Event,
    StepsPage,
    StepView,
    TranscriptEntry,
)
from leadhand.models.views.view import Page

SHOWN = 20  # maximum running steps and warnings in a view
#: The note for a session whose program this version cannot read.
UNREADABLE = "its program was written by a newer version; ask an API of that version"
_MANY = 1000  # batch size when everything is read


class Queries:
    """Builds views of sessions. All methods raise SessionUnknown for an unknown id."""

    def __init__(
        self,
        store: Store,
        read: Callable[[str], Program],
        catalog_of: Callable[[str, bool], Catalog],
        fleet: Fleet,
        troubles: Troubles,
        artifacts: ArtifactSource,
    ) -> None:
        self._troubles = troubles
        self._artifacts = artifacts
        self._store = store
        self._reads = store.session_reads()
        self._fleet = fleet
        self._program = read
        self._notes = Notes(store, catalog_of)
        self._listing = Listing(store, status_of=self._status, views_of=self._views)
        self.walk, self.view = self._listing.walk, self._view

    def session(self, session: str) -> SessionView:
        """Returns a session's view: status, progress, role and phase. Raises SessionUnknown."""
        found = self._reads.find(session)
        if found is None:
            raise SessionUnknown(session)
        ref, fields = found
        return with_phase(self._store, ref, fields, self._view(ref, fields))

    def submitted(self, session: str, made: CreatedSession | None) -> SessionView:
        """Returns the view of a submitted session; takes one round trip if just made here."""
        found = made and self._reads.created(made, most=SHOWN)
        if made is None or found is None:
            return self.session(session)
        fields, records = found
        program = self._readable(fields["program"])
        view = self._view_of(made.ref, fields, program, records, made.workers)
        return with_phase(self._store, made.ref, fields, view)

    def sessions(
        self,
        wanted: SessionsWanted | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[SessionView]:
        """Returns a page of the sessions that match a filter, newest first."""
        return self._listing.page(wanted or SessionsWanted(), limit=limit, cursor=cursor)

    def result(self, session: str) -> ResultView:
        """Returns the result of an ended session. Raises SessionStillRuns."""
        ref = self.ref(session)
        fields = self._fields(ref)
        if fields["status"] not in ENDED:
            raise SessionStillRuns(session, fields["status"])
        program = self._program(fields["program"])
        turns = self._newest_turns(ref, program)
        ledger = [
            LedgerEntry.model_validate_json(line)
            for line in self._store.lines(ref, "ledger", 0, -1)
        ]
        texts = self._texts_of_loops(ref, program, turns)
        if fields["kind"] == "flow":
            texts[WHOLE] = text_of_flow(self._store, ref, program)
        warnings = list(dict.fromkeys(self._store.lines(ref, "warnings", 0, -1)))
        reason = reason_of(fields)
        nearest = partial(nearest_of, known=Snapshot(self._store, ref))
        result = result_of(
            session, fields, reason, program, turns, ledger, texts, warnings, nearest=nearest
        )
        result = result.model_copy(update={"evidence": evidence_of(result)})
        if fields["kind"] == "plan":
            return result.model_copy(update={"spawned": spawned_by(self._store, ref)})
        if fields["kind"] != "graph":
            return result
        found = graph_results(self._store, ref, program, self._artifacts)
        return result.model_copy(update=found._asdict())

    def steps(self, session: str, *, limit: int = 50, cursor: str | None = None) -> StepsPage:
        """Returns a page of a session's steps that became ready, with the turns among them."""
        ref = self.ref(session)
        fields = self._fields(ref)
        program = self._program(fields["program"])
        return steps_page(self._store, ref, program, fields["place"], limit=limit, cursor=cursor)

    def ledger(
        self, session: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[LedgerEntry]:
        """Returns a page of a session's ledger, its record of loop iterations, oldest first."""
        ref = self.ref(session)
        start = number_of(cursor)
        lines = self._store.lines(ref, "ledger", start, start + limit)
        items = [LedgerEntry.model_validate_json(line) for line in lines[:limit]]
        return Page(items=items, next=encode_cursor(start + limit) if len(lines) > limit else None)

    def transcript(
        self, session: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[TranscriptEntry]:
        """Returns a page of a session's transcript, oldest first; notes replace dropped records."""
        ref = self.ref(session)
        asked = number_of(cursor)
        dropped, lines = self._store.transcript(ref, asked, limit + 1)
        start = max(asked, dropped)
        items = [transcript_entry(line, start + n) for n, line in enumerate(lines[:limit], 1)]
        if asked < dropped and items:
            items = [dropped_note(dropped, items[0].at), *items[: limit - 1]]
        # A client that follows the transcript continues at its end.
        end = max((entry.seq for entry in items), default=start)
        return Page(items=items, next=encode_cursor(end) if start + len(lines) > end else None)

    def newest_transcript(self, session: str, *, limit: int) -> list[TranscriptEntry]:
        """Returns a session's last `limit` transcript entries, oldest first, numbered from 1."""
        lines = self._store.lines(self.ref(session), "transcript", -limit, -1)
        return [transcript_entry(line, number) for number, line in enumerate(lines, 1)]

    def transcript_text(self, session: str) -> Iterator[str]:
        """Returns a session's transcript as Markdown, in parts. Raises SessionUnknown at once."""
        fields = self._fields(self.ref(session))
        title = fields.get("label") or fields["name"]
        return as_markdown(title, self._whole_transcript(session))

    def _whole_transcript(self, session: str) -> Iterator[TranscriptEntry]:
        cursor: str | None = None
        while True:
            page = self.transcript(session, limit=_MANY, cursor=cursor)
            yield from page.items
            if page.next is None:
                return
            cursor = page.next

    def diffs(
        self,
        session: str,
        *,
        iteration: int | None = None,
        limit: int = 10,
        cursor: str | None = None,
    ) -> DiffsPage:
        """Returns a page of a session's agent diffs, of one iteration or all; if none, why."""
        ref = self.ref(session)
        fields = self._fields(ref)
        program = self._readable(fields["program"])
        return diffs_page(
            self._store, ref, fields, program, iteration=iteration, limit=limit, cursor=cursor
        )

    def _all_differences(self, session: str) -> list[DiffView]:
        found: list[DiffView] = []
        cursor: str | None = None
        while True:
            page = self.diffs(session, limit=_MANY, cursor=cursor)
            found += page.items
            if page.next is None:
                return found
            cursor = page.next

    def events(
        self, session: str, *, after: str = "0", limit: int = 100, block_ms: int = 0
    ) -> list[Event]:
        """Returns a session's events after an event id, oldest first; waits up to `block_ms`."""
        ref = self.ref(session)
        found = self._store.events({ref: after}, limit=limit, block_ms=block_ms)
        return found.get(ref, [])

    def events_many(
        self, after: Mapping[str, str], *, limit: int = 500, block_ms: int = 0
    ) -> dict[str, list[Event]]:
        """Returns new events of several sessions, without deleted ones; waits up to `block_ms`."""
        refs = {ref: start for id_, start in after.items() if (ref := self._store.ref(id_))}
        if not refs:
            return {}
        found = self._store.events(refs, limit=limit, block_ms=block_ms)
        return {ref.id: events for ref, events in found.items()}

    def export(self, session: str) -> ExportView:
        """Returns all stored data of a session as a stream; a running session is not paused."""
        ref = self.ref(session)
        fields = self._fields(ref)
        program = self._program(fields["program"])
        found = sorted(self._store.outcomes(ref).items())
        request = self._store.copies().request(ref)
        return ExportView(
            exported_at=iso(self._store.now_ms()),
            session=self._view(ref, fields),
            document=None if request is None else _redact_all(json.loads(request)),
            program=_redact_all(program.model_dump(mode="json")),
            result=self.result(session) if fields["status"] in ENDED else None,
            steps=self._all_steps(session),
            outcomes=_redact_all({address: json.loads(text) for address, text in found}),
            ledger=[
                LedgerEntry.model_validate_json(text)
                for text in self._store.lines(ref, "ledger", 0, -1)
            ],
            events=self._store.all_events(ref),
            transcript=list(self._whole_transcript(session)),
            differences=self._all_differences(session),
            inbox=[message_view(message) for message in read_messages(self._store, ref)],
            plan=exported_plan(self._store, ref, fields, program),
            values=list(exported_values(self._store, ref)),
            children=sorted(self._store.children(ref)),
        )

    def outermost_states(self, ref: SessionRef, program: Program) -> tuple[list[str], list[str]]:
        """Returns the ids of a session's top-level nodes that ran, as two lists: done, not done."""
        turns = self._newest_turns(ref, program)
        runs = self._runs(ref, program)
        addresses = {
            node.id: node.id if runs[node.id] == 1 else f"{node.id}~{runs[node.id]}"
            for node in program.body
        }
        steps = self._store.steps(ref, list(addresses.values()))
        done: list[str] = []
        failed: list[str] = []
        for node in program.body:
            turn, step = turns.get(node.id), steps.get(addresses[node.id])
            if turn is None and step is None:
                continue
            good = turn_is_done(node, turn) if turn else step_is_done(node, step)
            (done if good else failed).append(node.id)
        return done, failed

    def _status(self, ref: SessionRef, fields: Mapping[str, str]) -> str:
        """Displayed status: `waiting` when every live step is parked."""
        return shown_status(self._store, ref, fields)

    def _readable(self, program: str) -> Program | None:
        """The program, or None if a newer version compiled it or it was deleted.

        The session, and lists that contain it, can be displayed without it.
        """
        try:
            return self._program(program)
        except (ProgramNewer, SessionUnknown):
            return None

    def _view(self, ref: SessionRef, fields: Mapping[str, str]) -> SessionView:
        (view,) = self._views_at([(ref, fields)], self._workers_for([(ref, fields)]))
        return view

    def _views(self, found: Sequence[Found], damaged: list[Found]) -> list[SessionView]:
        """The views of sessions, without those that become `damaged`."""
        workers = self._workers_for(found)
        return read_undamaged(partial(self._views_at, workers=workers), found, damaged)

    def _workers_for(self, found: Sequence[Found]) -> list[WorkerView]:
        """The workers, if the views of these sessions need them."""
        placed = any(f["place"] and f["status"] == SessionStatus.ACTIVE for _, f in found)
        return self._fleet.inventories() if placed else []

    def _views_at(self, found: Sequence[Found], workers: Sequence[WorkerView]) -> list[SessionView]:
        """The views of sessions, whose records are read for all of them at once."""
        programs = [self._readable(fields["program"]) for _, fields in found]
        nodes = [[node.id for node in program.body] if program else [] for program in programs]
        asked = [(ref, names) for (ref, _), names in zip(found, nodes, strict=True)]
        records = self._reads.records(asked, most=SHOWN)
        return [
            self._view_of(ref, fields, program, one, workers)
            for (ref, fields), program, one in zip(found, programs, records, strict=True)
        ]

    def _view_of(
        self,
        ref: SessionRef,
        fields: Mapping[str, str],
        program: Program | None,
        records: SessionRecords,
        workers: Sequence[WorkerView],
    ) -> SessionView:
        active = fields["status"] == SessionStatus.ACTIVE
        parent = json.loads(fields["parent"])["session"] if fields.get("parent") else None
        about = about_loop(fields["kind"], program)
        return SessionView(
            id=ref.id,
            kind=fields["kind"],
            name=fields["name"],
            label=fields.get("label") or None,
            **noted(fields),
            status=status_of(fields, records.parked_count, records.live_count),
            reason=reason_of(fields),
            parent=parent,
            root=ref.root,
            **made_by(fields),
            place=fields["place"],
            cwd=fields.get("cwd") or None,
            folder=fields.get("listed_in") or None,
            worktree=own_folder_view(fields),
            created_at=iso(int(fields["created"])),
            updated_at=iso(int(fields["updated"])),
            ended_at=iso(int(fields["ended"])) if fields.get("ended") else None,
            resumed_after=fields.get("after"),
            counters=counters(fields),
            budget=budget_lines(fields, records.now_ms),
            progress=progress_of(program, fields, records) if program else Progress(),
            task=about.task,
            doer=about.doer,
            checkers=list(about.checkers),
            warnings=list(dict.fromkeys(records.warnings)),
            notes=self._notes.of(ref, fields, workers, records) if program else [UNREADABLE],
            needs_attention=self._notes.attention(ref, fields, program, records),
            troubles=troubles_at(fields["place"], workers, self._troubles) if active else [],
        )

    def _all_steps(self, session: str) -> list[StepView]:
        page = self.steps(session, limit=_MANY)
        found = page.items
        while page.next is not None:
            page = self.steps(session, limit=_MANY, cursor=page.next)
            found += page.items
        return found

    def _newest_turns(self, ref: SessionRef, program: Program) -> dict[str, TurnRecord]:
        """The newest run of each opened outermost turn, by node; '' is the root."""
        runs = self._runs(ref, program)
        ids = {f"{node.id}~{runs[node.id]}": node.id for node in program.body}
        turns = self._store.turns(ref, ["", *ids])
        return {ids.get(i, ""): turn.model_copy(update={"run": int(i.rpartition("~")[2] or 1)})
                for i, turn in turns.items()}  # fmt: skip

    def _texts_of_loops(
        self, ref: SessionRef, program: Program, turns: Mapping[str, TurnRecord]
    ) -> dict[str, str]:
        """The texts of the outermost loops; in a flow the newest agent's, in a plan its own."""
        known, found = Snapshot(self._store, ref), dict[str, str]()
        for node in program.body:
            if isinstance(node, Loop) and node.id in turns:
                run = f"{node.id}~{turns[node.id].run}"
                at = result_of_turn(run, node.result, turns[node.id])
                if node.origin is not None:
                    found[node.id] = newest_text(program, run, known) or ""
                elif at is not None:
                    found[node.id] = str(known.outcome(at).get("text", ""))
            elif isinstance(node, Step) and node.action is Action.PLAN:
                found[WHOLE] = str(known.outcome(node.id).get("text", ""))
        return found

    def _runs(self, ref: SessionRef, program: Program) -> dict[str, int]:
        names = [node.id for node in program.body]
        found = self._store.values(ref, "runs", names)
        return {name: int(found.get(name, 1)) for name in names}

    def ref(self, session: str) -> SessionRef:
        """Returns the ids of a session and its root. Raises SessionUnknown."""
        ref = self._store.ref(session)
        if ref is None:
            raise SessionUnknown(session)
        return ref

    def _fields(self, ref: SessionRef) -> dict[str, str]:
        fields = self._store.fields(ref)
        if "status" not in fields:
            raise SessionUnknown(ref.id)
        return fields


def _redact_all(kept: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Redacts credentials, which programs and outcomes may contain, for an export."""
    return {name: without_secrets(value) for name, value in kept.items()}


def transcript_entry(line: str, seq: int) -> TranscriptEntry:
    """Parses a stored transcript record (JSON) to an entry with this sequence number."""
    fields = json.loads(line)
    return TranscriptEntry(seq=seq, at=iso(fields.pop("at_ms")), **fields)


def dropped_note(dropped: int, at: str) -> TranscriptEntry:
    """Builds the transcript entry that says how many of the first records were dropped."""
    text = f"the first {dropped} records were dropped"
    return TranscriptEntry(
        seq=dropped, at=at, address="", label="transcript", role="note", text=text
    )
