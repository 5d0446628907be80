"""The operations on sessions: submit, read, control, and make them from others."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from leadhand.contract.calls import Answer, Ask, Call, Noun, Op, Steps
from leadhand.contract.operation import (
    CONTROLS,
    DIGITS,
    EVENT_ID_FORM,
    EVENT_STREAM,
    GONE,
    JSON,
    JSON_LINES,
    READS,
    WITHOUT_DEFAULT,
    A,
    ApiResponse,
    Body,
    BodyRight,
    Limit,
    NoBody,
    NoQuery,
    Operation,
    PageQuery,
    Query,
    Scope,
    YesOrNo,
    not_null,
    replies,
)
from leadhand.contract.requests import calls, given, if_match, parsed, reads, reads_text, request
from leadhand.errors import ControlRefused, SessionChanged, SessionUnknown
from leadhand.models.documents import Budget
from leadhand.models.verdicts import ReasonCode
from leadhand.models.views.explain import ExplainView, ReceiptView
from leadhand.models.views.result import ExportView, LedgerEntry, ResultView
from leadhand.models.views.session import BulkView, SessionView, TreeView
from leadhand.models.views.step import DiffsPage, Event, OutputView, StepsPage, TranscriptEntry
from leadhand.models.views.view import Page

Q = TypeVar("Q", bound=Query)

BulkVerb = Literal["stop", "resume", "abort", "archive", "restore", "delete"]
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


def _read(
    verb: str, summary: str, *responses: ApiResponse, query: type[Q], mcp: str = ""
) -> Operation[Q]:
    """Declares a read of one session."""
    return Operation(
        name=f"sessions.{verb}", method="GET", path=f"{_ONE}/{verb}", summary=summary,
        responses=responses, scope=Scope.READ, body_right=READS, query=query, mcp=mcp,
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
    scope=Scope.READ, body_right=READS, headers=("If-None-Match",), mcp="session_status",
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
    mcp="explain",
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


#: The statuses after each verb: a repeated call that finds one of them was executed before.
_LEADS_TO = {
    STOP.name: {"stopping", "stopped"},
    RESUME.name: {"active", "waiting"},
    RETRY.name: {"active", "waiting"},
    EXIT.name: {"exiting", "exited"},
    ABORT.name: {"aborting", "aborted"},
}


class Sessions(Noun):
    """Reads sessions, controls and annotates them."""

    @calls(SHOW)
    def session(self, session: str) -> SessionView:
        """Get the current view of a session by its id. Raises SessionUnknown."""

    @calls(LIST)
    def sessions(
        self,
        *,
        status: str | Sequence[str] | None = None,
        kind: str | None = None,
        name: str | None = None,
        label: str | None = None,
        folder: str | None = None,
        reason: str | None = None,
        parent: str | None = None,
        archived: Literal["no", "any", "only"] | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[SessionView]:
        """List a page of sessions that match all filters, newest first; by default none archived.

        `folder` means those beneath too. There are more sessions while a page has a `next`.
        """

    @calls(RESULT)
    def result(self, session: str) -> ResultView:
        """Get the result of a session. Raises SessionStillRuns until it has ended."""

    @calls(STEPS)
    def steps(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> StepsPage:
        """List a page of a session's steps, sorted by address, with the runs of its loops."""

    @calls(LEDGER)
    def ledger(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[LedgerEntry]:
        """List a page of a session's loop iterations, in the order in which they ended."""

    @calls(TRANSCRIPT)
    def transcript(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[TranscriptEntry]:
        """List a page of the messages to and from agents and people in a session, in order."""

    @Op
    def transcript_text(self, session: str) -> Ask[str]:
        """Return the whole transcript of a session's agents and people as Markdown text."""
        return reads_text(request(TRANSCRIPT, session, format="markdown"))

    @calls(EVENTS)
    def event_page(
        self, session: str, *, after: str | None = None, limit: int | None = None
    ) -> Page[Event]:
        """List a page of a session's events so far; its `next` is the `after` of the next page."""

    @calls(EXPORT)
    def export(self, session: str) -> ExportView:
        """Get all stored data of a session in one object: steps, ledger, events and more."""

    @calls(EXPORT)
    def export_text(self, session: str, part: Literal["all", "ledger"] = "all") -> str:
        """Return all data of a session as JSON text, or only its iterations as JSON Lines."""

    @calls(DIFFS)
    def diffs(
        self,
        session: str,
        *,
        iteration: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DiffsPage:
        """Get a page of the diffs of a session's file changes, or the reason why there are none."""

    @calls(OUTPUT)
    def output(
        self, session: str, *, step: str | None = None, limit: int | None = None
    ) -> list[OutputView]:
        """Get recent output of a session's latest attempts, of one step or all, newest first."""

    @calls(RECEIPT)
    def receipt(self, session: str) -> ReceiptView:
        """Get the attempts that the last stop, exit or abort interrupted, and how each ended."""

    @calls(EXPLAIN)
    def explain(self, session: str) -> ExplainView:
        """Explain why a session waits or why it ended, and what to do next."""

    @calls(TREE)
    def tree(self, session: str, *, limit: int | None = None) -> TreeView:
        """List a session and all sessions below it, at most `limit`; and why the session ended."""

    @Op
    def drawing(
        self, session: str, *, form: Literal["svg", "text"] = "svg", width: int = 120
    ) -> Ask[str]:
        """Return a drawing of a session: an SVG document, or text with lines of at most `width`."""
        return reads_text(request(DRAWING, session, format=form, width=width))

    @Op
    def stop(self, session: str, *, seen: SessionView | None = None) -> Steps[SessionView]:
        """Stop a session so that it can be resumed: no step starts, running ones are handed back.

        With `seen`, this and the methods below raise SessionChanged if the session has changed.
        """
        return self._control(STOP, session, seen)

    @Op
    def resume(
        self,
        session: str,
        max_iterations: int | None = None,
        *,
        after: str | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        as_: Literal["old", "new"] | None = None,
        accept_protected: bool = False,
        seen: SessionView | None = None,
    ) -> Steps[SessionView]:
        """Resume a stopped or failed session; a limit that was reached must be raised.

        A flow runs the version that it was started with, or with `as_="new"` that of its file now.

        `after` names the last point that counts as done (an address, a label, or positions from
        0 such as `1[2]/0`): the steps after it run again. `budget` names those of its limits
        that are to hold from now on. With `accept_protected` changed protected files are taken as
        they are; otherwise what a doer has changed is put back.
        """
        limits = None
        if budget is not None:
            read = budget if isinstance(budget, Budget) else Budget.model_validate(dict(budget))
            limits = read.model_dump(exclude_none=True)
        return self._control(
            RESUME, session, seen, max_iterations=max_iterations, after=after,
            budget=limits, accept_protected=accept_protected or None, **{"as": as_},
        )  # fmt: skip

    @Op
    def retry(
        self, session: str, step: str, *, seen: SessionView | None = None
    ) -> Steps[SessionView]:
        """Resume a stopped or failed session so that a step and all its dependents run again."""
        return self._control(RETRY, session, seen, step=step)

    @Op
    def exit(
        self, session: str, reason: str, *, seen: SessionView | None = None
    ) -> Steps[SessionView]:
        """End a session because its task cannot succeed; `reason` says why."""
        return self._control(EXIT, session, seen, reason=reason)

    @Op
    def abort(
        self, session: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> Steps[SessionView]:
        """Begin to abort a session: running attempts are cancelled; it cannot be resumed."""
        return self._control(ABORT, session, seen, reason=reason)

    @Op
    def rehome(
        self, session: str, place: str, *, seen: SessionView | None = None
    ) -> Steps[SessionView]:
        """Move a session and its waiting steps to another place (a worker host)."""
        call = request(REHOME, session, body={"place": place}, headers=if_match(seen))
        return self._steer(session, call, lambda view: view.place == place)

    @Op
    def delete(
        self, session: str, *, force: bool = False, seen: SessionView | None = None
    ) -> Ask[SessionView | None]:
        """Delete an ended session; with `force`, abort one that runs and delete it at its end.

        Returns None once it is deleted, until then the session that is being aborted. Without
        `force`, raises SessionStillRuns for one that has not ended.
        """
        force_it = "true" if force else None
        call = request(DELETE, session, headers=if_match(seen), force=force_it)
        return Ask(call, _read_deleted)

    @calls(ANNOTATE)
    def annotate(
        self,
        session: str,
        *,
        title: str | None = None,
        note: str | None = None,
        archived: bool | None = None,
    ) -> SessionView:
        """Set a session's title and note, and whether lists hide it; None changes nothing.

        Raises ControlRefused for hiding one that is at work.
        """

    @Op
    def bulk(
        self,
        verb: BulkVerb,
        wanted: SessionsWanted,
        *,
        dry_run: bool = True,
        reason: str = "",
        force: bool = False,
        cursor: str | None = None,
        token: str | None = None,
    ) -> Ask[BulkView]:
        """Apply a verb (stop, delete ...) to all matching sessions; by default only count them.

        A call with its `token` leaves out what changed since; one with a `next` is not the last.
        """
        body = {"verb": verb, "filter": wanted.given(), "dry_run": dry_run, "reason": reason,
                "force": force, **given(cursor=cursor, token=token)}  # fmt: skip
        return reads(BulkView, request(BULK, body=body))

    @calls(SKIP)
    def skip(
        self, session: str, step: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> SessionView:
        """Skip a step that has not run or has failed; dependent steps run without its result.

        A failed session resumes with that. Raises ControlRefused for a step that runs.
        """

    def _control(
        self,
        operation: Operation[Any],
        session: str,
        seen: SessionView | None,
        **body: Any,
    ) -> Steps[SessionView]:
        call = request(operation, session, body=given(**body), headers=if_match(seen))
        return self._steer(session, call, lambda view: view.status in _LEADS_TO[operation.name])

    def _steer(
        self, session: str, call: Call, is_done: Callable[[SessionView], bool]
    ) -> Steps[SessionView]:
        """Steer a session; a call that was repeated may have been carried out before."""
        answer: Answer = yield call
        try:
            return parsed(SessionView, answer)
        except (ControlRefused, SessionChanged):
            if answer.repeated:
                view = yield from self.session(session)
                if is_done(view):
                    return view
            raise


def _read_deleted(answer: Answer) -> SessionView | None:
    try:
        response = answer.checked()
    except SessionUnknown:
        if answer.repeated:
            return None
        raise
    return parsed(SessionView, answer) if response.content else None
