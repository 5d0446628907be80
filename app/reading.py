"""What readers are shown: views put together from what the store holds; nothing is written here."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from pydantic import JsonValue

from app.agents_here import agents_of
from app.catalog import Catalog
from app.cursors import address_of, encoded, number_of
from app.errors import ProgramNewer, SessionStillRuns, SessionUnknown
from app.filters import SessionFilter
from app.flow_nearest import nearest_of
from app.flow_notes import changes, kept, left_behind
from app.inventories import believed
from app.keys import SessionRef
from app.known import KnownOf
from app.last_said import last_said
from app.listing import Listing
from app.origins import result_of_turn
from app.pictures import (
    budget_lines,
    counters,
    diff_view,
    iso,
    node_progress,
    running_step,
    step_view,
    stops_of,
)
from app.program import Loop, Program, by_number, iteration_of
from app.reasons import Reason
from app.records import TurnRecord
from app.redaction import without_secrets
from app.results import result_of
from app.standing import step_is_done, turn_is_done
from app.states import ENDED, FINAL, SessionStatus
from app.store import Store
from app.texts import cut
from app.tools_here import tools_of
from app.transcript import as_markdown
from app.views import (
    AgentView,
    DiffView,
    Event,
    ExportView,
    LedgerEntry,
    Page,
    Progress,
    ResultView,
    SessionView,
    StepView,
    ToolView,
    TranscriptEntry,
    WorkerView,
)

#: How many running steps and warnings a view shows.
SHOWN = 20
#: How much of a question a view shows.
QUESTION = 500
#: What is noted of a session whose program this version cannot read.
UNREADABLE = "its program was written by a newer version; ask an API of that version"
#: How much is read in one go where all is wanted.
_MANY = 1000


class Reader:
    """The read side. Raises SessionUnknown for ids that are not there."""

    def __init__(self, store: Store, program: Callable[[str], Program], catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._program = program
        self._listing = Listing(store, status_of=self._status, view_of=self._view)
        self.walk = self._listing.walk

    def session(self, session: str) -> SessionView:
        """One session, with how far it is."""
        ref = self._ref(session)
        return self._view(ref, self._fields(ref))

    def sessions(
        self,
        wanted: SessionFilter | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[SessionView]:
        """Those sessions that are meant, the newest first."""
        return self._listing.page(wanted or SessionFilter(), limit=limit, cursor=cursor)

    def result(self, session: str) -> ResultView:
        """How the session ended. Raises SessionStillRuns until it has."""
        ref = self._ref(session)
        fields = self._fields(ref)
        if fields["status"] not in ENDED:
            raise SessionStillRuns(session, fields["status"])
        program = self._program(fields["program"])
        turns = self._newest_turns(ref, program)
        ledger = [LedgerEntry.model_validate_json(line) for line in self._lines(ref, "ledger")]
        texts = self._texts_of_loops(ref, program, turns)
        warnings = self._lines(ref, "warnings")
        reason = Reason.model_validate_json(fields["reason"]) if fields.get("reason") else None
        nearest = partial(nearest_of, known=KnownOf(self._store, ref))
        return result_of(
            session, fields, reason, program, turns, ledger, texts, warnings, nearest=nearest
        )

    def steps(self, session: str, *, limit: int = 50, cursor: str | None = None) -> Page[StepView]:
        """All steps that ever became ready, by address; each comes once."""
        ref = self._ref(session)
        fields = self._fields(ref)
        program = self._program(fields["program"])
        after = by_number(address_of(cursor)) if cursor is not None else None
        known = sorted(self._store.names(ref, "steps"), key=by_number)
        ahead = known if after is None else known[bisect_right(known, after, key=by_number) :]
        shown = ahead[:limit]
        records = self._store.steps(ref, shown)
        place = fields["place"]
        items = [step_view(program, a, records[a], place) for a in shown if a in records]
        return Page(items=items, next=encoded(shown[-1]) if len(ahead) > limit else None)

    def ledger(
        self, session: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[LedgerEntry]:
        """Every iteration, oldest first."""
        ref = self._ref(session)
        start = number_of(cursor)
        lines = self._store.lines(ref, "ledger", start, start + limit)
        items = [LedgerEntry.model_validate_json(line) for line in lines[:limit]]
        return Page(items=items, next=encoded(start + limit) if len(lines) > limit else None)

    def transcript(
        self, session: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[TranscriptEntry]:
        """What was said, oldest first; a note stands for what is no longer kept."""
        ref = self._ref(session)
        asked = number_of(cursor)
        dropped, lines = self._store.said(ref, asked, limit + 1)
        start = max(asked, dropped)
        items = [_said(line, start + n) for n, line in enumerate(lines[:limit], 1)]
        if asked < dropped and items:
            items = [_no_longer_kept(dropped, items[0].at), *items[: limit - 1]]
        # Whoever follows goes on from where there is nothing yet.
        end = max((entry.seq for entry in items), default=start)
        return Page(items=items, next=encoded(end) if start + len(lines) > end else None)

    def transcript_text(self, session: str) -> Iterator[str]:
        """All of it as Markdown, part by part. Raises SessionUnknown before the first."""
        fields = self._fields(self._ref(session))
        title = fields.get("label") or fields["name"]
        return as_markdown(title, self._all_said(session))

    def _all_said(self, session: str) -> Iterator[TranscriptEntry]:
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
    ) -> Page[DiffView]:
        """What each doer changed in its folder, in order; of one iteration, or of all."""
        ref = self._ref(session)
        start = number_of(cursor)
        known = sorted(filter(None, self._store.names(ref, "diffs")), key=by_number)
        meant = [a for a in known if iteration is None or iteration_of(a) == iteration]
        shown = meant[start : start + limit]
        kept = self._store.values(ref, "diffs", shown)
        items = [diff_view(address, text) for address, text in kept.items()]
        return Page(
            items=items, next=encoded(start + limit) if len(meant) > start + limit else None
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
        """What happened after the event of this id, oldest first."""
        ref = self._ref(session)
        found = self._store.events({ref: after}, limit=limit, block_ms=block_ms)
        return found.get(ref, [])

    def events_many(
        self, after: Mapping[str, str], *, limit: int = 500, block_ms: int = 0
    ) -> dict[str, list[Event]]:
        """The same of several sessions in one call; those that are gone are left out."""
        refs = {ref: start for id_, start in after.items() if (ref := self._store.ref(id_))}
        if not refs:
            return {}
        found = self._store.events(refs, limit=limit, block_ms=block_ms)
        return {ref.id: events for ref, events in found.items()}

    def export(self, session: str) -> ExportView:
        """Everything that is kept of a session; one that runs goes on meanwhile."""
        ref = self._ref(session)
        fields = self._fields(ref)
        program = self._program(fields["program"])
        found = sorted(self._store.outcomes(ref).items())
        return ExportView(
            exported_at=iso(self._store.now_ms()),
            session=self._view(ref, fields),
            program=_unkeyed(program.model_dump(mode="json")),
            result=self.result(session) if fields["status"] in ENDED else None,
            steps=self._all_steps(session),
            outcomes=_unkeyed({address: json.loads(text) for address, text in found}),
            ledger=[LedgerEntry.model_validate_json(text) for text in self._lines(ref, "ledger")],
            events=self._all_events(ref),
            transcript=list(self._all_said(session)),
            differences=self._all_differences(session),
            children=sorted(self._store.children(ref)),
        )

    def workers(self) -> list[WorkerView]:
        """The worker hosts that told of themselves lately."""
        return believed(self._store.fleet().workers(), self._store.now_ms())

    def agents(self) -> list[AgentView]:
        """The agents that the workers know, with where each can be used."""
        return agents_of(self.workers())

    def tools(self) -> list[ToolView]:
        """The tools that the workers have, with where each can be used."""
        return tools_of(self.workers())

    def standing(self, ref: SessionRef, program: Program) -> tuple[list[str], list[str]]:
        """Of a failed session's outermost nodes: those that are done, and those that failed."""
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
        """The status that is shown: an active session of which all is parked waits."""
        status = fields["status"]
        parked = self._store.size(ref, "parked") if status == SessionStatus.ACTIVE else 0
        return "waiting" if parked and parked == self._store.size(ref, "live") else status

    def _readable(self, program: str) -> Program | None:
        """The program, or None where a newer version wrote it, or where it is gone.

        A session is shown all the same, and so are those that are listed with it.
        """
        try:
            return self._program(program)
        except (ProgramNewer, SessionUnknown):
            return None

    def _view(self, ref: SessionRef, fields: Mapping[str, str]) -> SessionView:
        program = self._readable(fields["program"])
        parent = json.loads(fields["parent"])["session"] if fields.get("parent") else None
        return SessionView(
            id=ref.id,
            kind=fields["kind"],
            name=fields["name"],
            label=fields.get("label") or None,
            status=self._status(ref, fields),
            reason=Reason.model_validate_json(fields["reason"]) if fields.get("reason") else None,
            parent=parent,
            root=ref.root,
            place=fields["place"],
            cwd=fields.get("cwd") or None,
            created_at=iso(int(fields["created"])),
            updated_at=iso(int(fields["updated"])),
            ended_at=iso(int(fields["ended"])) if fields.get("ended") else None,
            resumed_after=fields.get("after"),
            counters=counters(fields),
            budget=budget_lines(fields, self._store.now_ms()),
            progress=self._progress(ref, program, fields) if program else Progress(),
            warnings=self._store.lines(ref, "warnings", 0, SHOWN - 1),
            notes=self._notes(ref, fields) if program else [UNREADABLE],
        )

    def _notes(self, ref: SessionRef, fields: Mapping[str, str]) -> list[str]:
        """What a session waits for that does not come by itself, or holds it up."""
        if fields["status"] in FINAL:
            return []
        notes = changes(self._catalog, fields.get("source", ""))
        children = kept(fields.get("source", ""))
        notes += left_behind(ref.id, children, self._store.steps(ref, list(children)))
        if fields["status"] == SessionStatus.ACTIVE:
            notes += self._place_gone(ref, fields["place"])
            notes += [*self._locked_out(ref), *self._questions(ref)]
        return notes

    def _questions(self, ref: SessionRef) -> list[str]:
        """What people are asked."""
        records = self._store.steps(ref, self._store.members(ref, "parked", SHOWN))
        return [
            f"{address} asks: {cut(str(record.parked.get('question') or ''), QUESTION)}"
            f"; answer with: leadhand answer {ref.id} TEXT"
            for address, record in sorted(records.items())
            if record.parked is not None and record.parked.get("on") == "human"
        ]

    def _place_gone(self, ref: SessionRef, place: str) -> list[str]:
        if not place or any(worker.place == place for worker in self.workers()):
            return []
        move = f"leadhand rehome {ref.id} PLACE"
        return [f"place {place!r} has no worker; start one there, or: {move}"]

    def _locked_out(self, ref: SessionRef) -> list[str]:
        """Which locks its first steps wait for, and who has them."""
        records = self._store.steps(ref, self._store.members(ref, "live", SHOWN))
        notes = []
        for address, record in sorted(records.items()):
            if record.state == "ready" and record.blocked:
                holders = [
                    who.partition("|")[0] for who in self._store.fleet().holders(record.blocked)
                ]
                held = f", held by {', '.join(dict.fromkeys(holders))}" if holders else ""
                notes.append(f"{address} waits for {record.blocked}{held}")
        return notes

    def _progress(self, ref: SessionRef, program: Program, fields: Mapping[str, str]) -> Progress:
        turns = self._newest_turns(ref, program)
        nodes = [
            node_progress(node, turns.get(node.id), stops_of(fields, node.id))
            for node in program.body
        ]
        running = self._store.members(ref, "running", SHOWN)
        records = self._store.steps(ref, running)
        return Progress(
            nodes=nodes, running=[running_step(program, a, r) for a, r in sorted(records.items())]
        )

    def _all_steps(self, session: str) -> list[StepView]:
        page = self.steps(session, limit=_MANY)
        found = page.items
        while page.next is not None:
            page = self.steps(session, limit=_MANY, cursor=page.next)
            found += page.items
        return found

    def _all_events(self, ref: SessionRef) -> list[Event]:
        found: list[Event] = []
        while True:
            after = found[-1].id if found else "0-0"
            more = self._store.events({ref: after}, limit=_MANY, block_ms=0).get(ref, [])
            found += more
            if len(more) < _MANY:
                return found

    def _newest_turns(self, ref: SessionRef, program: Program) -> dict[str, TurnRecord]:
        """The newest run of each outermost turn that opened, by node; '' is the root."""
        runs = self._runs(ref, program)
        ids = {f"{node.id}~{runs[node.id]}": node.id for node in program.body}
        turns = self._store.turns(ref, ["", *ids])
        return {ids.get(id_, ""): turn.model_copy(update={"run": int(id_.rpartition("~")[2] or 1)})
                for id_, turn in turns.items()}  # fmt: skip

    def _texts_of_loops(
        self, ref: SessionRef, program: Program, turns: Mapping[str, TurnRecord]
    ) -> dict[str, str]:
        """What the outermost loops came to: in a flow it is what was said last."""
        known, found = KnownOf(self._store, ref), dict[str, str]()
        for node in program.body:
            if isinstance(node, Loop) and node.id in turns:
                run = f"{node.id}~{turns[node.id].run}"
                at = result_of_turn(run, node.result, turns[node.id])
                if node.origin is not None:
                    found[node.id] = last_said(program, run, known) or ""
                elif at is not None:
                    found[node.id] = str(known.outcome(at).get("text", ""))
        return found

    def _runs(self, ref: SessionRef, program: Program) -> dict[str, int]:
        names = [node.id for node in program.body]
        found = self._store.values(ref, "runs", names)
        return {name: int(found.get(name, 1)) for name in names}

    def _lines(self, ref: SessionRef, part: str) -> list[str]:
        return self._store.lines(ref, part, 0, -1)

    def _ref(self, session: str) -> SessionRef:
        ref = self._store.ref(session)
        if ref is None:
            raise SessionUnknown(session)
        return ref

    def _fields(self, ref: SessionRef) -> dict[str, str]:
        fields = self._store.fields(ref)
        if "status" not in fields:
            raise SessionUnknown(ref.id)
        return fields


def _unkeyed(kept: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """What runs may hold keys, for those who need them; others read an export."""
    return {name: without_secrets(value) for name, value in kept.items()}


def _said(line: str, seq: int) -> TranscriptEntry:
    """A record of the transcript; where it stands is its number."""
    kept = json.loads(line)
    return TranscriptEntry(seq=seq, at=iso(kept.pop("at_ms")), **kept)


def _no_longer_kept(dropped: int, at: str) -> TranscriptEntry:
    """What stands in the transcript for its beginning, where that became too long to keep."""
    text = f"the first {dropped} records are no longer kept"
    return TranscriptEntry(
        seq=dropped, at=at, address="", label="transcript", role="note", text=text
    )
