"""The operations on sessions: submit, read, control, and make them from others."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SkipValidation,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from leadhand.contract.bodies import (
    DIGITS,
    EVENT_ID_FORM,
    KEY_FORM,
    WITHOUT_DEFAULT,
    Body,
    Limit,
    NoBody,
    NoQuery,
    PageQuery,
    Query,
    YesOrNo,
    not_null,
)
from leadhand.contract.operation import (
    CONTROLS,
    EVENT_STREAM,
    GONE,
    JSON,
    JSON_LINES,
    READS,
    A,
    ApiResponse,
    BodyRight,
    Operation,
    Scope,
    replies,
)
from leadhand.flows.documents import AnyDocument
from leadhand.models.documents import Budget, Checker, Name, Text
from leadhand.models.reasons import ReasonCode
from leadhand.models.session_environment import WithEnvironment
from leadhand.models.views.batch import MOST, BatchView
from leadhand.models.views.explain import ExplainView, ReceiptView
from leadhand.models.views.result import ExportView, LedgerEntry, ResultView
from leadhand.models.views.session import BulkView, SessionView, TreeView
from leadhand.models.views.step import DiffsPage, Event, OutputView, StepsPage, TranscriptEntry
from leadhand.models.views.view import Page

Q = TypeVar("Q", bound=Query)

BulkVerb = Literal["stop", "resume", "abort", "archive", "restore", "delete"]
#: What becomes of a child session once its parent, or the attempt that started it, has ended.
ParentEnd = Literal["abort", "let-go-on"]
SessionKind = Literal["loop", "workflow", "flow", "graph", "plan", "guard"]
ShownStatus = Literal[
    "active", "waiting", "stopping", "stopped", "exiting", "exited", "aborting", "aborted",
    "completed", "failed",
]  # fmt: skip

_SESSION = "/v1/sessions"
_ONE = f"{_SESSION}/{{session}}"
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def _instant(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise ValueError("it should be a time with its offset; such as 2026-11-21T12:00:00Z")
    return value


#: A timestamp in RFC 3339 format; other formats of pydantic are refused.
Instant = Annotated[
    datetime,
    BeforeValidator(_instant),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Word = Annotated[str, Field(min_length=1, max_length=120)]


#: An absolute path, without `..` and doubled or trailing slashes.
Folder = Annotated[
    str,
    Field(min_length=1, max_length=4096, pattern="^/"),
    AfterValidator(lambda path: posixpath.normpath("/" + path.lstrip("/"))),
]


class SessionsWanted(BaseModel):
    """Conditions that a session must all meet; unset ones do not apply."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Any of these.
    status: Annotated[Sequence[ShownStatus], Field(max_length=10)] = ()
    kind: SessionKind | None = None
    name: Word | None = None
    label: Word | None = None
    #: The folder that it was submitted from, or one above.
    folder: Folder | None = None
    #: The code of its current reason.
    reason: ReasonCode | None = None
    #: The session whose step started it.
    parent: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")] | None = None
    #: Archived sessions: without them, with them, or only them.
    archived: Literal["no", "any", "only"] = "no"
    #: At this time or later.
    created_after: Instant | None = None
    #: Before this time.
    created_before: Instant | None = None

    def given(self) -> dict[str, Any]:
        """Returns the conditions that are set, as JSON."""
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True)


_SESSION_NOW = replies(SessionView, "The session as it is now.", 202, headers=("ETag",))
_MADE = replies(SessionView, "The new session, or the one known by its key.", 202,
                headers=("Location", "ETag"))  # fmt: skip


def _read(verb: str, summary: str, *responses: ApiResponse, query: type[Q]) -> Operation[Q]:
    """Declares a read of one session."""
    return Operation(
        name=f"sessions.{verb}", method="GET", path=f"{_ONE}/{verb}", summary=summary,
        responses=responses, scope=Scope.READ, body_right=READS, query=query,
    )  # fmt: skip


def _control(
    verb: str,
    summary: str,
    body: type[A],
    *,
    body_required: bool = False,
    body_right: BodyRight | None = CONTROLS,
    refuses: tuple[int, ...] = (409, 412),
) -> Operation[A]:
    """Declares a control operation of a session."""
    return Operation(
        name=f"sessions.{verb}", method="POST", path=f"{_ONE}/{verb}", summary=summary,
        responses=(_SESSION_NOW,), scope=Scope.CONTROL, body_right=body_right, body=body,
        body_required=body_required, headers=("If-Match",), refuses=refuses,
    )  # fmt: skip


class SubmitQuery(Query):
    """How a child session that a body starts depends on its parent."""

    #: What becomes of the child once its parent, or the attempt that started it, has ended.
    on_parent_end: ParentEnd | None = None


SUBMIT = Operation[JsonValue](
    name="sessions.submit", method="POST", path=_SESSION,
    summary="Start a session; with a step token, a child session",
    responses=(replies(SessionView, "The session, new or known by its key.", 202,
                       headers=("Location", "ETag")),),
    scope=Scope.SUBMIT,  # and exec:free for documents with commands or callables
    body_right=BodyRight("spawn", "any"),  # a child of its own session
    query=SubmitQuery, body=AnyDocument, body_required=True, headers=("Idempotency-Key",),
    refuses=(409, 429), makes="session",
)  # fmt: skip


Key = Annotated[str, Field(pattern=f"^{KEY_FORM}$")]
Mode = Literal["all", "each"]


class BatchItem(Body):
    """A document, and the key by which a repeated request finds its session."""

    #: Parsed item by item: with the mode `each` a request may have invalid ones.
    document: SkipValidation[AnyDocument]
    idempotency_key: Key | None = None


class Batch(Body):
    """Documents to submit, in order."""

    items: Annotated[list[BatchItem], Field(min_length=1, max_length=MOST)]
    #: With `all`, no session is created if a document is refused.
    mode: Mode = "all"


BATCH = Operation[Batch](
    name="sessions.batch", method="POST", path=f"{_SESSION}/batch",
    summary="Start many sessions, all or each",
    responses=(replies(BatchView, "What became of each item.", 202),),
    scope=Scope.SUBMIT, body=Batch, body_required=True, refuses=(409,),
)  # fmt: skip


class SessionsQuery(SessionsWanted, PageQuery):
    """A filter of sessions, and the page of the list."""

    def wanted(self) -> SessionsWanted:
        """Returns the conditions of the query as a filter of sessions."""
        names = SessionsWanted.model_fields
        return SessionsWanted.model_construct(**{name: getattr(self, name) for name in names})


LIST = Operation[SessionsQuery](
    name="sessions.listed", method="GET", path=_SESSION, summary="List sessions, newest first",
    responses=(replies(Page[SessionView], "A page of the matching sessions."),),
    scope=Scope.READ, body_right=READS, session_in_query="parent", query=SessionsQuery,
)  # fmt: skip


_EVERYTHING = "it would match every session; name at least a status, kind or time"


class Meant(SessionsWanted):
    """The filter of a bulk operation, which must not be empty."""

    @model_validator(mode="before")
    @classmethod
    def _says_something(cls, given: object) -> object:
        if isinstance(given, dict):
            if not given:
                raise ValueError(_EVERYTHING)
            for name, value in given.items():
                if value is None or value == []:
                    raise ValueError(f"{name} is empty; give it a value or leave it out")
        return given


class Bulk(Body):
    verb: BulkVerb
    filter: Meant
    #: Only count the sessions and list the first ones.
    dry_run: bool = True
    #: For `abort`: the reason.
    reason: Annotated[str, Field(max_length=20_000)] = ""
    #: For `delete`: abort active sessions first.
    force: bool = False
    #: The `next` of the previous call.
    cursor: Annotated[str, Field(min_length=1, max_length=500, pattern="^[!-~]+$")] | None = None
    #: The token of a dry run: the call applies to the sessions that it counted, and to no others.
    token: Annotated[str, Field(min_length=1, max_length=100_000, pattern="^[!-~]+$")] | None = None


BULK = Operation[Bulk](
    name="sessions.bulk", method="POST", path=f"{_SESSION}/bulk",
    summary="Apply a verb to all sessions that match a filter",
    responses=(replies(BulkView, "What was done, or would be done (dry run)."),),
    scope=Scope.CONTROL, body=Bulk, body_required=True,
)  # fmt: skip


SHOW = Operation[NoQuery](
    name="sessions.one", method="GET", path=_ONE, summary="Show a session",
    responses=(replies(SessionView, "The session as it is now.", headers=("ETag",)),
               ApiResponse(304, "The session has not changed.", headers=("ETag",))),
    scope=Scope.READ, body_right=READS, headers=("If-None-Match",),
)  # fmt: skip


class DeleteQuery(Query):
    #: Whether to abort an active session first, and to leave the folder that one has to itself.
    force: YesOrNo = False


DELETE = Operation[DeleteQuery](
    name="sessions.delete", method="DELETE", path=_ONE, summary="Delete a session",
    responses=(GONE, replies(SessionView, "With force: it is aborting, and is deleted at its end.",
                             202, headers=("ETag",))),
    scope=Scope.CONTROL, query=DeleteQuery, headers=("If-Match",), refuses=(409, 412),
)  # fmt: skip


RESULT = Operation[NoQuery](
    name="sessions.result", method="GET", path=f"{_ONE}/result",
    summary="Show the result of an ended session", responses=(replies(ResultView, "The result."),),
    scope=Scope.READ, body_right=READS, refuses=(409,),
)  # fmt: skip


STEPS = _read(
    "steps", "List a session's steps",
    replies(StepsPage, "A page of steps, and of runs of loops."), query=PageQuery,
)  # fmt: skip


LEDGER = _read(
    "ledger", "List a session's iterations, oldest first",
    replies(Page[LedgerEntry], "A page of iterations."), query=PageQuery,
)  # fmt: skip


class DiffsQuery(PageQuery):
    """The page of a list of diffs, optionally of one iteration."""

    #: They may be long.
    limit: Annotated[int, Field(ge=1, le=20), DIGITS] = 10
    iteration: Annotated[int, Field(ge=1, le=10_000), DIGITS] | None = None


DIFFS = _read(
    "diffs", "Show the diffs of each doer's work",
    replies(DiffsPage, "A page of diffs, in order."), query=DiffsQuery,
)  # fmt: skip


class OutputQuery(Query):
    """Which output is asked for: of one step, or of all; of how many attempts."""

    step: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[!-~]+$")] | None = None
    limit: Annotated[int, Field(ge=1, le=32), DIGITS] = 5


OUTPUT = _read(
    "output", "Read the last output of a session's bodies",
    replies(Page[OutputView], "By attempt, the one that wrote last first."), query=OutputQuery,
)  # fmt: skip


RECEIPT = _read(
    "receipt", "List the attempts that the last control ended",
    replies(ReceiptView, "The attempts that ran then, in the whole tree."), query=NoQuery,
)  # fmt: skip


EXPLAIN = _read(
    "explain", "Explain why a session waits or ended",
    replies(ExplainView, "The chain of causes, and suggested commands."), query=NoQuery,
)  # fmt: skip


class TreeQuery(Query):
    #: Maximum number of sessions; the upper levels come first.
    limit: Annotated[int, Field(ge=1, le=1000), DIGITS] = 200


TREE = _read(
    "tree", "List a session and all sessions below it",
    replies(TreeView, "The sessions, each before its children, and the causes."), query=TreeQuery,
)  # fmt: skip


class TranscriptQuery(PageQuery):
    #: A page as JSON, or the whole transcript as Markdown.
    format: Literal["json", "markdown"] = "json"


TRANSCRIPT = _read(
    "transcript", "Read a session's prompts and answers, in order",
    ApiResponse(200, "A page as JSON, or the whole transcript as Markdown.",
                {JSON: Page[TranscriptEntry], "text/markdown": str}),
    query=TranscriptQuery,
)  # fmt: skip


class ExportQuery(Query):
    #: All data as one JSON object, or the ledger as JSON Lines.
    part: Literal["all", "ledger"] = "all"


EXPORT = Operation[ExportQuery](
    name="sessions.export", method="GET", path=f"{_ONE}/export",
    summary="Export all stored data of a session",
    responses=(ApiResponse(200, "All data as one object, or the ledger as JSON Lines.",
                           {JSON: ExportView, JSON_LINES: str}, headers=("Content-Disposition",)),),
    scope=Scope.READ, query=ExportQuery,
)  # fmt: skip


class EventsQuery(Query):
    #: Maximum number of events.
    limit: Limit = 50
    #: The id of the last event that the client has.
    after: Annotated[str, Field(pattern=f"^{EVENT_ID_FORM}$")] | None = None


class StreamQuery(EventsQuery):
    #: Whether a stream also carries what running bodies write, as events `output` without an id.
    output: YesOrNo = False


EVENTS = Operation[StreamQuery](
    name="events.of_session", method="GET", path=f"{_ONE}/events",
    summary="Read or follow a session's events",
    responses=(ApiResponse(200, "A page of events, or a stream of them until the session ends.",
                           {JSON: Page[Event], EVENT_STREAM: str}),),
    scope=Scope.READ, body_right=READS, query=StreamQuery, headers=("Last-Event-ID",),
)  # fmt: skip


SVG = "image/svg+xml"
PLAIN_TEXT = "text/plain"


class DrawingQuery(Query):
    """How to draw a session."""

    format: Literal["svg", "text"] = "svg"
    #: Of a text: the characters of a line.
    width: Annotated[int, Field(ge=20, le=400), DIGITS] = 120


DRAWING = Operation[DrawingQuery](
    name="drawings.one", method="GET", path=f"{_ONE}/drawing",
    summary="Draw a session: its steps in layers, loops and states",
    responses=(ApiResponse(200, "The drawing.", {SVG: str, PLAIN_TEXT: str}),),
    scope=Scope.READ, body_right=READS, query=DrawingQuery,
)  # fmt: skip


STOP = _control("stop", "Stop a session: start no steps, and release running ones", NoBody)


def _is_position(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _point(value: object) -> object:
    """Check a point's type with one error, instead of one per member of the union."""
    is_name = isinstance(value, str) and value.strip() and len(value) <= 1000
    is_list = isinstance(value, list) and 1 <= len(value) <= 50 and all(map(_is_position, value))
    if is_name or is_list or _is_position(value):
        return value
    hint = "give an address, a label, or positions from 0: 2, or [0, 1]"
    raise ValueError(f"it is not a resume point; {hint}")


class Resume(Body):
    max_iterations: Annotated[int, Field(ge=1, le=10_000)] | None = None
    #: New budget limits; an exhausted one must be raised.
    budget: Budget | None = None
    #: Takes protected files as they are now; otherwise what a doer has changed is put back.
    accept_protected: bool = False
    #: For a flow: continue with its original definition, or with the current file if it fits.
    as_: Annotated[Literal["old", "new"], Field(alias="as")] = "old"
    #: The last point that counts as done; everything after it runs again. Without it the session
    #: continues where it was. An address, a label, or zero-based positions: one as a number,
    #: several as a list or a text (`2/0`, `1[2]/0`).
    after: Annotated[
        Annotated[str, Field(min_length=1, max_length=1000)]
        | Annotated[int, Field(ge=0)]
        | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=50)]
        | SkipJsonSchema[None],
        BeforeValidator(_point),
        BeforeValidator(not_null),
        WITHOUT_DEFAULT,
    ] = None

    @property
    def position(self) -> str | None:
        """Returns the point to resume after, as text; None if it is not given."""
        if isinstance(self.after, list):
            return "/".join(map(str, self.after))
        return None if self.after is None else str(self.after)


RESUME = _control("resume", "Resume a stopped or failed session", Resume, refuses=(409, 412, 429))


class Retry(Body):
    """The step of a stopped or failed session that runs again."""

    #: Its address, label, or zero-based positions as text, as for a resume.
    step: Annotated[str, Field(min_length=1, max_length=1000)]


RETRY = _control(
    "retry", "Run a step of a stopped or failed session again, and what depends on it", Retry,
    body_required=True, refuses=(409, 412, 429),
)  # fmt: skip


class Skip(Retry):
    """The step of a session that is skipped."""

    reason: Annotated[str, Field(max_length=2_000)] = ""


SKIP = _control(
    "skip", "Skip a step, so that what depends on it continues without it", Skip,
    body_required=True, refuses=(409, 412, 429),
)  # fmt: skip


class Exit(Body):
    reason: Annotated[str, Field(min_length=1, max_length=20_000)]


EXIT = _control(
    "exit", "Exit a session from the inside", Exit, body_required=True,
    body_right=BodyRight("exit", "own"),
)  # fmt: skip


class Abort(Body):
    reason: Annotated[str, Field(max_length=20_000)] = ""


ABORT = _control("abort", "Abort a session", Abort)


_Position = Annotated[str, Field(min_length=1, max_length=1000)]
_Inputs = Annotated[dict[Name, JsonValue], Field(default_factory=dict, max_length=1000)]
_Tools = Annotated[dict[Name, Name], Field(default_factory=dict, max_length=1000)]

#: A list in JSON, which a strict model would not take for a tuple.
_Checkers = Annotated[tuple[Checker, ...], Field(min_length=1, max_length=100, strict=False)]


class Fork(Body, WithEnvironment):
    """Where a fork continues, and what is different in it."""

    #: The last point of the session that counts as done, as for a resume; without it the fork
    #: continues where the session had come to.
    after: Annotated[
        _Position | SkipJsonSchema[None], BeforeValidator(not_null), WITHOUT_DEFAULT
    ] = None
    #: New values of inputs; all that refers to them runs again.
    inputs: _Inputs
    #: Of a graph or flow: another tool for a step or in place of a tool, in the steps that run.
    tools: _Tools
    #: The agent that does the work from here on.
    agent: Name | None = None
    #: as-is: it works in the session's folder as that is now, and in no worktree of its own.
    folder: Literal["as-is"] | None = None
    label: Name | None = None


FORK = Operation[Fork](
    name="sessions.fork", method="POST", path=f"{_ONE}/fork",
    summary="Create a session that continues from a point of this one", responses=(_MADE,),
    scope=Scope.SUBMIT, body=Fork, headers=("Idempotency-Key",), refuses=(409, 422, 429),
)  # fmt: skip


class Rerun(Body, WithEnvironment):
    """What is different in the new session."""

    #: Another task of a loop, or request of a plan.
    task: Text | None = None
    checkers: _Checkers | None = None
    #: The agent that does the work.
    agent: Name | None = None
    #: New values of inputs of a flow or graph.
    inputs: _Inputs
    label: Name | None = None


RERUN = Operation[Rerun](
    name="sessions.rerun", method="POST", path=f"{_ONE}/rerun",
    summary="Run the document of a session again, with changes", responses=(_MADE,),
    scope=Scope.SUBMIT, body=Rerun, headers=("Idempotency-Key",), refuses=(409, 422, 429),
)  # fmt: skip


class Annotation(Body):
    """What a person notes on a session; absent fields stay as they are."""

    #: The title that lists show; empty: none.
    title: Annotated[str, Field(max_length=120)] | None = None
    #: A note for people, that its page and comparisons show; empty: none.
    note: Annotated[str, Field(max_length=2000)] | None = None
    #: Whether lists hide it.
    archived: bool | None = None


ANNOTATE = Operation[Annotation](
    name="sessions.annotate", method="PATCH", path=_ONE,
    summary="Rename or archive a session, or note something on it",
    responses=(replies(SessionView, "The session, with its title and note."),),
    scope=Scope.CONTROL, body=Annotation, refuses=(409,),
)  # fmt: skip


class Rehome(Body):
    place: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


REHOME = Operation[Rehome](
    name="sessions.rehome", method="POST", path=f"{_ONE}/rehome",
    summary="Move a session to another place",
    responses=(replies(SessionView, "The session, at its new place.", 202, headers=("ETag",)),),
    scope=Scope.CONTROL, body=Rehome, body_required=True, headers=("If-Match",),
    refuses=(409, 412),
)  # fmt: skip
