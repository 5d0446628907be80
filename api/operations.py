"""What the API can be asked and what it answers: the words that its description is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from api import bodies
from api.answers import JSON_LINES
from api.fleet import FsckBody
from api.health import Health
from api.limits import LimitBody
from api.tokens import NewTokenBody
from app.tokens import NewToken, TokenView
from app.views import (
    AgentView,
    BulkView,
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
    ToolView,
    TranscriptEntry,
    WorkerView,
)
from leadhand.any_document import AnyDocument
from leadhand.flow_documents import FlowRun

JSON = "application/json"


class Says(NamedTuple):
    """One answer: its status, what it means, and its body by media type."""

    status: int
    what: str
    body: Mapping[str, object] = {}
    headers: tuple[str, ...] = ()


class Operation(NamedTuple):
    """One thing that can be asked, by the endpoint that answers it."""

    endpoint: str
    method: str
    summary: str
    says: tuple[Says, ...]
    query: type[BaseModel] | None = bodies.NoQuery
    #: What the body is read as; None where none is read.
    body: object | None = None
    body_required: bool = False
    headers: tuple[str, ...] = ()
    #: Statuses of its problems beside those that follow from what it reads.
    refuses: tuple[int, ...] = ()
    #: The path parameter of other operations that the `id` of its answer is for.
    makes: str | None = None


def gives(model: object, what: str, status: int = 200, *, headers: tuple[str, ...] = ()) -> Says:
    """An answer of JSON."""
    return Says(status, what, {JSON: model}, headers)


_GONE = Says(204, "Done; there is nothing to say.")
_SESSION = gives(SessionView, "The session as it is now.", 202, headers=("ETag",))


def _steers(
    verb: str, summary: str, body: type[BaseModel], *, body_required: bool = False
) -> Operation:
    """One of the verbs that steer a session."""
    room = (429,) if verb == "resume" else ()
    return Operation(
        f"sessions.{verb}", "POST", summary, (_SESSION,), body=body, body_required=body_required,
        headers=("If-Match",), refuses=(409, 412, *room),
    )  # fmt: skip


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "sessions.submit", "POST", "Start a session",
        (gives(SessionView, "The session, new or known by its key.", 202,
               headers=("Location", "ETag")),),
        body=AnyDocument, body_required=True, headers=("Idempotency-Key",), refuses=(429,),
        makes="session",
    ),
    Operation(
        "sessions.listed", "GET", "List sessions, the newest first",
        (gives(Page[SessionView], "Some of those that are meant."),),
        query=bodies.SessionsQuery,
    ),
    Operation(
        "sessions.bulk", "POST", "Do one thing to all sessions that a filter means",
        (gives(BulkView, "What was done; of a dry run, what would be."),),
        body=bodies.Bulk, body_required=True,
    ),
    Operation(
        "sessions.one", "GET", "Show a session",
        (gives(SessionView, "The session as it is now.", headers=("ETag",)),
         Says(304, "It is as it was when the reader saw it.", headers=("ETag",))),
        headers=("If-None-Match",),
    ),
    Operation(
        "sessions.delete", "DELETE", "Forget a session",
        (_GONE, gives(SessionView, "By force: it is being aborted, and goes when that is done.",
                      202, headers=("ETag",))),
        query=bodies.DeleteQuery, headers=("If-Match",), refuses=(409, 412),
    ),
    Operation(
        "sessions.result", "GET", "Tell how a session ended",
        (gives(ResultView, "How it ended."),), refuses=(409,),
    ),
    Operation(
        "sessions.steps", "GET", "List a session's steps",
        (gives(Page[StepView], "Some of them."),), query=bodies.PageQuery,
    ),
    Operation(
        "sessions.ledger", "GET", "List a session's iterations, the oldest first",
        (gives(Page[LedgerEntry], "Some of them."),), query=bodies.PageQuery,
    ),
    Operation("sessions.diffs", "GET", "Show what each doer changed in its folder",
              (gives(Page[DiffView], "Some of it, in order."),), query=bodies.DiffsQuery),
    Operation("sessions.receipt", "GET", "Say what the last stop, exit or abort met, and where",
              (gives(ReceiptView, "The attempts that ran then, in the whole tree."),)),
    Operation("sessions.explain", "GET", "Say why a session waits or ended, and what to do next",
              (gives(ExplainView, "Why, down to the root cause, and commands that can be run."),)),
    Operation(
        "sessions.transcript", "GET", "Read what agents and people said in a session, in order",
        (Says(200, "Some of it; or all of it, as Markdown.",
              {JSON: Page[TranscriptEntry], "text/markdown": str}),),
        query=bodies.TranscriptQuery,
    ),
    Operation(
        "sessions.export", "GET", "Take along everything that is kept of a session",
        (Says(200, "Everything as one object, or the ledger alone line by line.",
              {JSON: ExportView, JSON_LINES: str}, headers=("Content-Disposition",)),),
        query=bodies.ExportQuery,
    ),
    Operation(
        "events.of_session", "GET", "Read or follow a session's events",
        (Says(200, "A page of them; as `text/event-stream`, each as it happens until the end.",
              {JSON: Page[Event], "text/event-stream": str}),),
        query=bodies.EventsQuery, headers=("Last-Event-ID",),
    ),
    _steers("stop", "Let nothing new start, and hand back what runs", bodies.NoBody),
    _steers("resume", "Go on with a stopped or failed session", bodies.Resume),
    _steers("exit", "End a session by intent", bodies.Exit, body_required=True),
    _steers("abort", "End a session by force", bodies.Abort),
    Operation("sessions.rehome", "POST", "Bind a session to another place",
              (gives(SessionView, "The session, at its new place.", 202, headers=("ETag",)),),
              body=bodies.Rehome, body_required=True, headers=("If-Match",),
              refuses=(409, 412)),
    Operation("sessions.answers", "POST", "Answer a question that a session asks of a person",
              (_SESSION,), body=bodies.Answers, body_required=True, refuses=(409,)),
    Operation("flows.listed", "GET", "List the flows of the catalog, the broken ones too",
              (gives(Page[FlowView], "All of them, by name."),)),
    Operation("flows.one", "GET", "Show a flow of the catalog",
              (gives(FlowView, "The flow as its file is now."),)),
    Operation(
        "flows.run", "POST", "Run a flow of the catalog",
        (gives(SessionView, "The session, new or known by its key.", 202,
               headers=("Location", "ETag")),),
        body=FlowRun, headers=("Idempotency-Key",), refuses=(409, 429), makes="session",
    ),
    Operation("flows.validate", "POST", "Check a flow that is being written",
              (gives(FlowCheckView, "Whether it could be run here now, and all that is wrong."),),
              body=JsonValue, body_required=True),
    Operation("workers.listed", "GET", "List the worker hosts",
              (gives(Page[WorkerView], "Those that told of themselves lately."),)),
    Operation("agents.listed", "GET", "List the agents",
              (gives(Page[AgentView], "All that a worker knows, and where each can be used."),)),
    Operation("tools.listed", "GET", "List the tools",
              (gives(Page[ToolView], "All that a worker has, and where each can be used."),)),
    Operation("fleet.queues", "GET", "List the queues",
              (gives(Page[QueueView], "All that a worker takes from or a step stands in."),)),
    Operation("fleet.fleet", "GET", "Look at the whole fleet",
              (gives(FleetView, "Sessions by status, queues, workers, what is overdue."),)),
    Operation("fleet.metrics", "GET", "Read the fleet as metrics",
              (Says(200, "All as gauges, in the text format of Prometheus.",
                    {"text/plain": str}),)),
    Operation("fleet.fsck", "POST", "Cross-check what Redis and the broker hold",
              (gives(FsckView, "Some of it, and where the next call goes on."),),
              body=FsckBody),
    Operation("limits.listed", "GET", "List the limits",
              (gives(Page[Limit], "All of them."),)),
    Operation("limits.one", "GET", "Show a limit",
              (gives(Limit, "The limit as it holds now.", headers=("ETag",)),)),
    Operation("limits.put", "PUT", "Set a limit",
              (gives(Limit, "The limit as it holds now.", headers=("ETag",)),),
              body=LimitBody, body_required=True, headers=("If-Match",), refuses=(412,)),
    Operation("limits.delete", "DELETE", "Take a limit away", (_GONE,),
              headers=("If-Match",), refuses=(412,)),
    Operation("tokens.create", "POST", "Make a token",
              (gives(NewToken, "The token; its text is told this once.", 201),),
              body=NewTokenBody, body_required=True, headers=("Idempotency-Key",), makes="token"),
    Operation("tokens.listed", "GET", "List the tokens",
              (gives(Page[TokenView], "All of them, without what opens doors."),)),
    Operation("tokens.revoke", "DELETE", "Revoke a token", (_GONE,)),
    Operation("health.alive", "GET", "Tell whether the process is alive",
              (gives(Health, "It is."),), query=None),
    Operation("health.ready", "GET", "Tell whether the process can be sent work",
              (gives(Health, "It can."),), query=None, refuses=(503,)),
    Operation("description.document", "GET", "Describe this API (OpenAPI 3.1)",
              (gives(dict[str, object], "This document."),), query=None),
    Operation("description.page", "GET", "Describe this API to people",
              (Says(200, "A page to read.", {"text/html": str}),), query=None),
)  # fmt: skip
