"""An engine that keeps everything in memory: enough of one to put the API through its paces."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue

from api.port import Verb
from app.capabilities import Caller
from app.cursors import number_of
from app.engine import Seen, SeenLimit
from app.errors import (
    AnswerUnwanted,
    ControlRefused,
    FlowUnknown,
    IdempotencyConflict,
    InvalidDocument,
    LimitChanged,
    LimitUnknown,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
    StoreAway,
)
from app.filters import SessionFilter
from app.keys import SessionRef
from app.listing import Looked
from app.pictures import iso
from app.states import ENDED, SESSION_NEXT, SessionStatus
from app.tokens import Owner, Tokens
from app.transcript import as_markdown
from app.views import (
    AgentView,
    DiffView,
    Event,
    ExplainView,
    ExportView,
    Finding,
    FleetView,
    FlowCheckView,
    FlowView,
    FsckView,
    LedgerEntry,
    Limit,
    Overdue,
    Page,
    QueueView,
    ReceiptView,
    ResultView,
    Running,
    SessionView,
    StepView,
    Submitted,
    ToolView,
    TranscriptEntry,
    WorkerView,
)
from app.watching import Lately
from leadhand.any_document import AnyDocument
from leadhand.documents import Budget
from leadhand.etags import etag
from leadhand.flow_documents import FlowDocument, FlowRun, WaitStep
from leadhand.views import position

AT = "2026-11-21T12:00:00Z"
_STEP = WaitStep(type="wait", seconds=1)
_TARGET: dict[Verb, SessionStatus] = {
    "stop": SessionStatus.STOPPING,
    "resume": SessionStatus.ACTIVE,
    "exit": SessionStatus.EXITING,
    "abort": SessionStatus.ABORTING,
}


class MemoryWatch:
    """A fleet of one worker at one step."""

    def __init__(self, workers: Callable[[], list[WorkerView]]) -> None:
        self._workers = workers

    def workers(self) -> list[WorkerView]:
        running = Running(
            session="0a0a0a0a", address="loop~1[1]/do", action="agent", label="do", queue="agents",
            attempt=1, process="w1/42", since=AT,
        )  # fmt: skip
        return [worker.model_copy(update={"running": [running]}) for worker in self._workers()]

    def queues(self) -> list[QueueView]:
        self._workers()
        return [QueueView(queue='odd "name"', depth=3, ready=2, oldest_ready_s=1.5, slots=4)]

    def fleet(self) -> FleetView:
        return FleetView(
            at=AT,
            sessions={"active": 1, "completed": 2},
            queues=self.queues(),
            workers=self.workers(),
            leases=Overdue(count=1, oldest_s=2.5, entries=7),
            ready=Overdue(),
        )

    def lately(self) -> Lately:
        return Lately({("completed", "done"): 2}, {1: 1, 3: 1}, {"accept": 2, "retry": 2})


class MemoryShelf:
    """Tokens in memory."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.marks: dict[str, str] = {}
        self.reads = 0
        self._uses: dict[str, int] = {}

    def put(self, token: str, text: str) -> None:
        self.texts[token] = text

    def get(self, token: str) -> str | None:
        self.reads += 1
        return self.texts.get(token)

    def all(self) -> Mapping[str, str]:
        return dict(self.texts)

    def drop(self, token: str) -> bool:
        return self.texts.pop(token, None) is not None

    def claim(self, mark: str, text: str) -> str:
        return self.marks.setdefault(mark, text)

    def claimed(self, mark: str) -> str | None:
        return self.marks.get(mark)

    def unclaim(self, mark: str) -> None:
        self.marks.pop(mark, None)

    def used(self, token: str, at_ms: int) -> None:
        self._uses[token] = at_ms

    def uses(self) -> Mapping[str, int]:
        return dict(self._uses)

    def spent(self, token: str, day: int) -> Mapping[str, int]:
        return {}


SAID = TranscriptEntry(
    seq=1, at=AT, address="loop~1[1]/do", label="do", role="assistant", text="# done", depth=1,
    iteration=1, agent="a",
)  # fmt: skip
ENTRY = LedgerEntry(loop="loop", run=1, iteration=1, verdict="retry", feedback="more")


def seen_words(seen: Seen) -> tuple[str, str]:
    return seen.status, iso(seen.updated_ms)


class MemoryEngine:
    """Sessions, their status and their events; `away` makes it a store that does not answer."""

    def __init__(self) -> None:
        self.away = False
        self.tokens = Tokens(MemoryShelf(), secret="of the test")
        self.watch = MemoryWatch(self.workers)
        self.owners: list[Owner | None] = []
        #: Fences of attempts that have ended.
        self.over: set[int] = set()
        self.controls: list[tuple[str, Verb, str, int | None, Caller | None]] = []
        self._changed = threading.Condition(threading.RLock())
        self._sessions: dict[str, SessionView] = {}
        self._events: dict[str, list[Event]] = {}
        self._keys: dict[str, tuple[str, str]] = {}
        self._limits: dict[str, Limit] = {}

    # What a test does to it

    def tell(self, session: str, kind: str, *, address: str | None = None, n: int = 0) -> str:
        """Write an event; its id."""
        with self._changed:
            told = self._events[session]
            event_id = f"{1000 + len(told)}-0"
            told.append(
                Event(id=event_id, type=kind, at_ms=len(told), address=address, fields={"n": n})
            )
            self._changed.notify_all()
            return event_id

    def put(self, session: str, status: str) -> None:
        """Give a session a status, and make it where there is none."""
        with self._changed:
            self._sessions[session] = SessionView(
                id=session, kind="loop", name="loop", status=status, root=session,
                created_at=AT, updated_at=AT,
            )  # fmt: skip
            self._events.setdefault(session, [])

    def note(self, session: str, note: str) -> None:
        """Let a look at a session show a note, though nothing has happened in it."""
        with self._changed:
            view = self._sessions[session]
            self._sessions[session] = view.model_copy(update={"notes": [note]})

    def end(self, session: str, status: str = "completed") -> None:
        """End a session, in one move with the event that says so."""
        with self._changed:
            self.put(session, status)
            self.tell(session, f"session.{status}")

    def require_untouched(self) -> None:
        """Nobody has changed anything since one session was put in."""
        assert [view.status for view in self._sessions.values()] == ["active"]
        assert (self.controls, self.owners, self._limits) == ([], [], {})
        assert self.tokens.views() == []

    # What the API asks

    def stands(self, caller: Caller) -> bool:
        return caller.fence not in self.over

    def submit(
        self,
        document: AnyDocument,
        *,
        idempotency_key: str | None = None,
        owner: Owner | None = None,
    ) -> Submitted:
        self.ping()
        if document.place == "nowhere":
            raise InvalidDocument("place", "nowhere", "no worker is there; start one")
        self.owners.append(owner)
        body = hashlib.sha256(document.model_dump_json().encode()).hexdigest()
        with self._changed:
            key = idempotency_key or f"no key {len(self._sessions)}"
            if key in self._keys:
                known, session = self._keys[key]
                if known != body:
                    raise IdempotencyConflict(key)
                return Submitted(session=session, created=False)
            session = f"{len(self._sessions):08x}"
            self._keys[key] = (body, session)
            self.put(session, "active")
            self.tell(session, "session.created")
            return Submitted(session=session, created=True)

    def rehome(self, session: str, place: str, *, seen: Seen | None = None) -> SessionView:
        view = self.session(session)
        self._compare(session, seen)
        return view.model_copy(update={"place": place})

    def limits(self) -> list[Limit]:
        return list(self._limits.values())

    def limit_of(self, key: str) -> Limit:
        if key not in self._limits:
            raise LimitUnknown(key)
        return self._limits[key]

    def limit(
        self,
        key: str,
        *,
        concurrency: int | None = None,
        per_minute: float | None = None,
        seen: SeenLimit | None = None,
    ) -> Limit:
        self._compare_limit(key, seen)
        self._limits[key] = Limit(key=key, concurrency=concurrency, per_minute=per_minute)
        return self._limits[key]

    def unlimit(self, key: str, *, seen: SeenLimit | None = None) -> bool:
        self._compare_limit(key, seen)
        return self._limits.pop(key, None) is not None

    def run_flow(
        self,
        name: str,
        run: FlowRun,
        *,
        idempotency_key: str | None = None,
        owner: Owner | None = None,
    ) -> Submitted:
        self.flow(name)
        document = FlowDocument(name=name, label=run.title, cwd=run.working_folder, steps=(_STEP,))
        return self.submit(document, idempotency_key=idempotency_key, owner=owner)

    def flows(self) -> list[FlowView]:
        self.ping()
        return [FlowView(name="review", description="Writes and reviews.")]

    def flow(self, name: str) -> FlowView:
        if name != "review":
            raise FlowUnknown(name, ("flows",))
        return self.flows()[0]

    def check_flow(self, given: JsonValue) -> FlowCheckView:
        return FlowCheckView(valid=isinstance(given, dict) and "steps" in given)

    def resume_as_new(
        self,
        session: str,
        *,
        max_iterations: int | None = None,
        budget: Budget | None = None,
        after: str | None = None,
        seen: Seen | None = None,
    ) -> SessionView:
        status = self.session(session).status
        self._compare(session, seen)
        raise ControlRefused(session, "resume as new", status, "it was not made of a flow")

    def give(
        self, session: str, text: str, *, address: str | None = None, by: str = "a person"
    ) -> SessionView:
        view = self.session(session)
        if view.status != "waiting":
            raise AnswerUnwanted(session, "none of its steps waits for a person")
        return view

    def session(self, session: str) -> SessionView:
        self.ping()
        with self._changed:
            if session not in self._sessions:
                raise SessionUnknown(session)
            return self._sessions[session]

    def walk(self, wanted: SessionFilter, cursor: str | None) -> Iterator[Looked]:
        self.ping()
        start = 0 if cursor is None else number_of(cursor)
        for number, view in enumerate([*self._sessions.values()][start:], start + 1):
            fields = {"kind": view.kind, "name": view.name, "label": view.label or ""}
            meant = wanted.fits(fields) and view.status in (wanted.status or (view.status,))
            yield Looked(number, SessionRef(view.id, view.root) if meant else None)

    def sessions(
        self, wanted: SessionFilter, *, limit: int, cursor: str | None
    ) -> Page[SessionView]:
        found = [self._sessions[one.ref.id] for one in self.walk(wanted, None) if one.ref]
        if not (cursor or "0").isdecimal() or not (cursor or "0").isascii():
            raise InvalidDocument("cursor", cursor, "use the `next` of the page before")
        start = int(cursor or 0)
        more = str(start + limit) if start + limit < len(found) else None
        return Page[SessionView](items=found[start : start + limit], next=more)

    def result(self, session: str) -> ResultView:
        view = self.session(session)
        if view.status not in ENDED:
            raise SessionStillRuns(session, view.status)
        return ResultView(
            session_id=session,
            kind=view.kind,
            status=view.status,
            verdict="accept" if view.status == "completed" else None,
            iterations=1,
            result_text="done",
        )

    def steps(self, session: str, *, limit: int, cursor: str | None) -> Page[StepView]:
        self.session(session)
        return Page[StepView](items=[])

    def ledger(self, session: str, *, limit: int, cursor: str | None) -> Page[LedgerEntry]:
        self.session(session)
        return Page[LedgerEntry](items=[])

    def transcript(self, session: str, *, limit: int, cursor: str | None) -> Page[TranscriptEntry]:
        self.session(session)
        return Page[TranscriptEntry](items=[SAID])

    def transcript_text(self, session: str) -> Iterator[str]:
        return as_markdown(self.session(session).name, iter([SAID]))

    def events(self, session: str, *, after: str, limit: int, block_ms: int = 0) -> list[Event]:
        MemoryEngine.session(self, session)
        with self._changed:
            later = [e for e in self._events[session] if position(e.id) > position(after)]
            return later[:limit]

    def events_many(
        self, after: Mapping[str, str], *, block_ms: int = 0
    ) -> Mapping[str, list[Event]]:
        self.ping()
        with self._changed:
            self._changed.wait_for(lambda: any(self._later(after).values()), block_ms / 1000)
            self.ping()
            return {session: events for session, events in self._later(after).items() if events}

    def control(
        self,
        session: str,
        verb: Verb,
        *,
        reason: str = "",
        max_iterations: int | None = None,
        budget: Budget | None = None,
        after: str | None = None,
        by: Caller | None = None,
        seen: Seen | None = None,
    ) -> SessionView:
        status = SessionStatus(self.session(session).status)
        self._compare(session, seen)
        if _TARGET[verb] not in SESSION_NEXT[status]:
            raise ControlRefused(session, verb, status)
        self.controls.append((session, verb, reason, max_iterations, by))
        self.put(session, _TARGET[verb])
        return self.session(session)

    def delete(
        self, session: str, *, force: bool = False, seen: Seen | None = None
    ) -> SessionView | None:
        status = self.session(session).status
        self._compare(session, seen)
        if status not in ENDED and not force:
            raise SessionStillRuns(session, status)
        if status in ENDED:
            del self._sessions[session]
            return None
        self.put(session, "aborting")
        return self.session(session)

    def export(self, session: str) -> ExportView:
        view = self.session(session)
        return ExportView(
            exported_at=AT, session=view, program={}, ledger=[ENTRY], events=self._events[session]
        )

    def workers(self) -> list[WorkerView]:
        self.ping()
        return [WorkerView(name="w1", place="local")]

    def agents(self) -> list[AgentView]:
        self.ping()
        return [AgentView(name="claude", kind="command", command="claude -p", usable_at=["local"])]

    def tools(self) -> list[ToolView]:
        self.ping()
        return [ToolView(name="text:slug", about="Makes a slug.", usable_at=["local"])]

    def diffs(
        self, session: str, *, iteration: int | None = None, limit: int, cursor: str | None
    ) -> Page[DiffView]:
        self.session(session)
        return Page[DiffView](items=[])

    def receipt(self, session: str) -> ReceiptView:
        return ReceiptView(session=session, status=self.session(session).status)

    def explain(self, session: str) -> ExplainView:
        status = self.session(session).status
        return ExplainView(session=session, status=status, text=f"it is {status}")

    def fsck(self, *, cursor: str | None = None, repair: bool = False) -> FsckView:
        lost = Finding(kind="hint_lost", session="0a0a0a0a", what="do is ready", mended=repair)
        return FsckView(items=[lost], found=1, left=0 if repair else 1, keys=9, sessions=1,
                        next=None if cursor else "7")  # fmt: skip

    def ping(self) -> None:
        if self.away:
            raise StoreAway("redis://somewhere:6379")

    def _compare_limit(self, key: str, seen: SeenLimit | None) -> None:
        held = self._limits.get(key)
        if seen is None or (seen == "any" and held is not None):
            return
        known = [] if seen == "any" else [one.model_copy(update={"key": key}) for one in seen]
        if held is None or held not in known:
            raise LimitChanged(key)

    def _compare(self, session: str, seen: Seen | None) -> None:
        view = self._sessions[session]
        if seen is not None and etag(*seen_words(seen)) != etag(view.status, view.updated_at):
            raise SessionChanged(session, view.status)

    def _later(self, after: Mapping[str, str]) -> dict[str, list[Event]]:
        return {
            session: [e for e in self._events.get(session, []) if position(e.id) > position(last)]
            for session, last in after.items()
        }
