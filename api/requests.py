"""Parses and validates bodies, queries and headers of requests."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal, TypeVar, get_origin

from flask import request
from gunicorn.http.errors import ParseException
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from werkzeug.exceptions import RequestEntityTooLarge

from api.json_body import parse_body
from api.problem_types import invalid, malformed, wrong_media_type
from api.validation_errors import field_problems
from app.domain.control import Seen
from app.operations.bulk import BulkVerb
from app.operations.spawn import ParentEnd
from app.queries.filters import SessionFilter
from leadhand.models.documents import Budget
from leadhand.models.etags import parse_etag
from leadhand.models.forms import Option
from leadhand.models.problems import FieldProblem

M = TypeVar("M", bound=BaseModel)

#: Maximum size of a body.
MAX_BODY_BYTES = 4 * 1024 * 1024

KEY = re.compile(r"[\x20-\x7e]{1,200}")
_EVENT_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")
_EVERYTHING = "it would match every session; name at least a status, kind or time"


def _whole_number(value: object) -> object:
    """Refuse numbers in a query that are not plain digits."""
    if isinstance(value, str) and not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", value):
        raise ValueError("it should be a whole number; give a whole number")
    return value


def _day(value: object) -> object:
    """Refuse what pydantic takes for a date too, such as a number of seconds."""
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("it should be a valid date; give a day such as 2026-11-01")
    return value


def _yes_or_no(value: object) -> object:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("it should be true or false; give one of them")
    return value


#: For whole numbers of a query. Limits are before it, or the description does not have them.
DIGITS = BeforeValidator(_whole_number)
Limit = Annotated[int, Field(ge=1, le=500), DIGITS]
Whole = Annotated[int, Field(ge=0, le=999_999_999), DIGITS]
Day = Annotated[date, BeforeValidator(_day)]
YesOrNo = Annotated[bool, BeforeValidator(_yes_or_no)]


class Query(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NoQuery(Query):
    """The query of a route without parameters."""


class PageQuery(Query):
    """The page of a list."""

    #: Maximum number of items.
    limit: Limit = 50
    #: The `next` of the previous page.
    cursor: Annotated[str, Field(min_length=1, max_length=500, pattern="^[!-~]+$")] | None = None


class QuestionsQuery(PageQuery):
    """The page of the list of questions, or the questions of one session and its children."""

    #: Only those of this session and of the child sessions that its steps wait for; one page.
    session: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")] | None = None


class SubmitQuery(Query):
    """How a child session that a body starts depends on its parent."""

    #: What becomes of the child once its parent, or the attempt that started it, has ended.
    on_parent_end: ParentEnd | None = None

    def policy_for(self, *, is_child: bool) -> ParentEnd:
        """Returns what becomes of a child at its parent's end. Raises Refused if it is no child."""
        if self.on_parent_end is not None and not is_child:
            message = "only a session that a doer or checker starts has a parent; leave it out"
            fault = FieldProblem(field="on_parent_end", message=message, place="query")
            raise invalid((fault.model_copy(update={"value": self.on_parent_end}),))
        return self.on_parent_end or "abort"


class TreeQuery(Query):
    #: Maximum number of sessions; the upper levels come first.
    limit: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_whole_number)] = 200


class InboxQuery(PageQuery):
    """The page of an inbox."""

    #: Only messages that no turn and no other reader has acknowledged.
    unread: YesOrNo = False


class DiffsQuery(PageQuery):
    """The page of a list of diffs, optionally of one iteration."""

    #: They may be long.
    limit: Annotated[int, Field(ge=1, le=20), BeforeValidator(_whole_number)] = 10
    iteration: Annotated[int, Field(ge=1, le=10_000), BeforeValidator(_whole_number)] | None = None


class SessionsQuery(SessionFilter, PageQuery):
    """A filter of sessions, and the page of the list."""

    def wanted(self) -> SessionFilter:
        """Returns the conditions of the query as a filter of sessions."""
        names = SessionFilter.model_fields
        return SessionFilter.model_construct(**{name: getattr(self, name) for name in names})


class DeleteQuery(Query):
    #: Whether to abort an active session first, and to leave the folder that one has to itself.
    force: YesOrNo = False


class ExportQuery(Query):
    #: All data as one JSON object, or the ledger as JSON Lines.
    part: Literal["all", "ledger"] = "all"


class TranscriptQuery(PageQuery):
    #: A page as JSON, or the whole transcript as Markdown.
    format: Literal["json", "markdown"] = "json"


class EventsQuery(Query):
    #: Maximum number of events.
    limit: Limit = 50
    #: The id of the last event that the client has.
    after: Annotated[str, Field(pattern=f"^{_EVENT_ID.pattern}$")] | None = None


class StreamQuery(EventsQuery):
    #: Whether a stream also carries what running bodies write, as events `output` without an id.
    output: YesOrNo = False


class OutputQuery(Query):
    """Which output is asked for: of one step, or of all; of how many attempts."""

    step: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[!-~]+$")] | None = None
    limit: Annotated[int, Field(ge=1, le=32), BeforeValidator(_whole_number)] = 5


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class NoBody(Body):
    """The body of a call without parameters: absent, or an empty object."""


def _is_position(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _drop_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


#: A field that may be left out, and is never null.
WITHOUT_DEFAULT = Field(json_schema_extra=_drop_default)


def not_null(value: object) -> object:
    """Refuses null for a field that may be left out: a point that was not found is no default."""
    if value is None:
        raise ValueError("it is null; leave it out to continue where the session was")
    return value


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


class Retry(Body):
    """The step of a stopped or failed session that runs again."""

    #: Its address, label, or zero-based positions as text, as for a resume.
    step: Annotated[str, Field(min_length=1, max_length=1000)]


class Skip(Retry):
    """The step of a session that is skipped."""

    reason: Annotated[str, Field(max_length=2_000)] = ""


class Exit(Body):
    reason: Annotated[str, Field(min_length=1, max_length=20_000)]


class Annotation(Body):
    """What a person notes on a session; absent fields stay as they are."""

    #: The title that lists show; empty: none.
    title: Annotated[str, Field(max_length=120)] | None = None
    #: A note for people, that its page and comparisons show; empty: none.
    note: Annotated[str, Field(max_length=2000)] | None = None
    #: Whether lists hide it.
    archived: bool | None = None


class Rehome(Body):
    place: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class Abort(Body):
    reason: Annotated[str, Field(max_length=20_000)] = ""


class Meant(SessionFilter):
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


class Hint(Body):
    """A person's message to the session's next turn."""

    #: At most 16 KiB; the session's next turn begins with it.
    text: Annotated[str, Field(min_length=1, max_length=20_000)]


class Notify(Body):
    """A child session's message to its parent; it is no completion signal."""

    #: A failure calls for a person until the message is acknowledged.
    status: Literal["success", "failure"]
    #: The whole report, at most 16 KiB: the reader gets this text alone.
    message: Annotated[str, Field(min_length=1, max_length=20_000)]
    #: The number of a pull request; it becomes a line of the text.
    pr_number: Annotated[int, Field(ge=1)] | None = None


class Answers(Body):
    model_config = ConfigDict(str_strip_whitespace=True)

    #: The answer; of a question with choices it may be one of these.
    text: Annotated[str, Field(min_length=1, max_length=200_000)] | None = None
    #: One of the question's choices.
    choice: Option | None = None
    #: The fields of the question's form; those that are left out have their defaults.
    fields: dict[str, JsonValue] | None = None
    #: The step that asked: its address, label or position in the file; required only if several
    #: steps wait.
    address: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None


def value() -> JsonValue:
    """Parses the body of the current request as any JSON value. Raises Refused if it is invalid."""
    return _json()


def body(model: type[M]) -> M:
    """Parses the request's body as this model; an absent one is an empty object. Raises Refused."""
    given = _json() if _read_bytes() else {}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid(field_problems(error, given, model)) from None


def query(model: type[M]) -> M:
    """Parses the request's query into a model. Raises Refused, also for unknown, repeated names."""
    given: dict[str, JsonValue] = {}
    for name, values in request.args.lists():
        if name in model.model_fields and _is_list(model, name):
            given[name] = list(values)
            continue
        if len(values) > 1:
            message = f"it is given {len(values)} times"
            problem = FieldProblem(field=name, message=message, hint="give it once", place="query")
            raise invalid((problem,))
        given[name] = values[0]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = field_problems(error, given, model, place="query")
        # A parameter is reported once, whichever of its values is invalid.
        named = {p.field.partition(".")[0]: p for p in reversed(problems)}
        raise invalid(
            tuple(p.model_copy(update={"field": name}) for name, p in reversed(named.items()))
        ) from None


def if_match() -> Seen | None:
    """Parses the header If-Match (a session's ETag); None if it is absent or `*`."""
    given = request.headers.get("If-Match")
    if given is None or given.strip() == "*":
        return None
    tags = (parse_etag(tag) for tag in given.split(","))
    # An unknown tag matches no session.
    return Seen(*next((tag for tag in tags if tag is not None), ("", 0)))


def idempotency_key() -> str | None:
    """Returns the header Idempotency-Key; None if absent. Raises Refused if it is malformed."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not KEY.fullmatch(key):
        raise malformed(
            "the Idempotency-Key cannot be used",
            field="Idempotency-Key",
            hint="give 1 to 200 printable ASCII characters",
        )
    return key


def last_event_id() -> str | None:
    """Returns the header Last-Event-ID; None if absent. Raises Refused if it is no event id."""
    last = request.headers.get("Last-Event-ID")
    if last is not None and not _EVENT_ID.fullmatch(last):
        raise malformed(
            "the Last-Event-ID is not the id of an event",
            field="Last-Event-ID",
            hint="give the id of an event, such as 1700000000000-0, or leave it out",
        )
    return last


def _is_list(model: type[BaseModel], name: str) -> bool:
    """Whether a parameter may be given several times."""
    return get_origin(model.model_fields[name].annotation) is tuple


def _json() -> JsonValue:
    """Parse the body; its Content-Type must be JSON."""
    if request.mimetype != "application/json":
        raise wrong_media_type(request.mimetype)
    if request.content_encoding not in (None, "identity"):
        raise wrong_media_type(f"encoded as {request.content_encoding}")
    return parse_body(_read_bytes())


def _read_bytes() -> bytes:
    """Read the bytes of the body. Raises Refused or RequestEntityTooLarge."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge
    try:
        received = request.get_data(cache=True)
    except ParseException as error:
        raise malformed(
            f"the chunks of the body cannot be read: {str(error)[:200]}",
            hint="send each chunk as its size in hexadecimal, its bytes and two line ends",
        ) from None
    # Werkzeug truncates a body of unknown length at its limit, which is one byte higher.
    if len(received) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge
    return received
