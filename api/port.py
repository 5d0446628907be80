"""What the API asks of the engine: `app.engine.Engine` is the one, and a test may bring another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from pydantic import JsonValue

from app.capabilities import Caller
from app.engine import Seen, SeenLimit
from app.filters import SessionFilter
from app.listing import Looked
from app.tokens import Owner, Tokens
from app.views import (
    AgentView,
    DiffView,
    Event,
    ExplainView,
    ExportView,
    FleetView,
    FlowCheckView,
    FlowView,
    FsckView,
    LedgerEntry,
    Limit,
    Page,
    QueueView,
    ReceiptView,
    ResultView,
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
from leadhand.flow_documents import FlowRun

Verb = Literal["stop", "resume", "exit", "abort"]


class Watch(Protocol):
    def workers(self) -> list[WorkerView]: ...

    def queues(self) -> list[QueueView]: ...

    def fleet(self) -> FleetView: ...

    def lately(self) -> Lately: ...


class Engine(Protocol):
    @property
    def watch(self) -> Watch: ...

    @property
    def tokens(self) -> Tokens: ...

    def stands(self, caller: Caller) -> bool: ...

    def submit(
        self,
        document: AnyDocument,
        *,
        idempotency_key: str | None = None,
        owner: Owner | None = None,
    ) -> Submitted: ...

    def run_flow(
        self,
        name: str,
        run: FlowRun,
        *,
        idempotency_key: str | None = None,
        owner: Owner | None = None,
    ) -> Submitted: ...

    def flows(self) -> list[FlowView]: ...

    def flow(self, name: str) -> FlowView: ...

    def check_flow(self, given: JsonValue) -> FlowCheckView: ...

    def resume_as_new(
        self,
        session: str,
        *,
        max_iterations: int | None = None,
        budget: Budget | None = None,
        after: str | None = None,
        seen: Seen | None = None,
    ) -> SessionView: ...

    def give(
        self, session: str, text: str, *, address: str | None = None, by: str = "a person"
    ) -> SessionView: ...

    def session(self, session: str) -> SessionView: ...

    def sessions(
        self, wanted: SessionFilter, *, limit: int, cursor: str | None
    ) -> Page[SessionView]: ...

    def walk(self, wanted: SessionFilter, cursor: str | None) -> Iterator[Looked]: ...

    def result(self, session: str) -> ResultView: ...

    def steps(self, session: str, *, limit: int, cursor: str | None) -> Page[StepView]: ...

    def ledger(self, session: str, *, limit: int, cursor: str | None) -> Page[LedgerEntry]: ...

    def transcript(
        self, session: str, *, limit: int, cursor: str | None
    ) -> Page[TranscriptEntry]: ...

    def transcript_text(self, session: str) -> Iterator[str]: ...

    def events(self, session: str, *, after: str, limit: int, block_ms: int = 0) -> list[Event]: ...

    def events_many(
        self, after: Mapping[str, str], *, block_ms: int = 0
    ) -> Mapping[str, list[Event]]: ...

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
    ) -> SessionView: ...

    def delete(
        self, session: str, *, force: bool = False, seen: Seen | None = None
    ) -> SessionView | None: ...

    def export(self, session: str) -> ExportView: ...

    def rehome(self, session: str, place: str, *, seen: Seen | None = None) -> SessionView: ...

    def workers(self) -> list[WorkerView]: ...

    def agents(self) -> list[AgentView]: ...

    def tools(self) -> list[ToolView]: ...

    def limits(self) -> list[Limit]: ...

    def limit_of(self, key: str) -> Limit: ...

    def limit(
        self,
        key: str,
        *,
        concurrency: int | None = None,
        per_minute: float | None = None,
        seen: SeenLimit | None = None,
    ) -> Limit: ...

    def unlimit(self, key: str, *, seen: SeenLimit | None = None) -> bool: ...

    def diffs(
        self, session: str, *, iteration: int | None = None, limit: int, cursor: str | None
    ) -> Page[DiffView]: ...

    def explain(self, session: str) -> ExplainView: ...

    def receipt(self, session: str) -> ReceiptView: ...

    def fsck(self, *, cursor: str | None = None, repair: bool = False) -> FsckView: ...

    def ping(self) -> None: ...
