"""Reads what a request brings: its body, its query and its headers, strictly."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar, get_origin

from flask import request
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from api.fields import field_problems
from api.json_body import parsed
from api.refusals import invalid, malformed, wrong_media_type
from app.bulk import BulkVerb
from app.engine import Seen
from app.filters import SessionFilter
from leadhand.any_document import AnyDocument
from leadhand.documents import Budget
from leadhand.etags import seen_in
from leadhand.problems import FieldProblem

M = TypeVar("M", bound=BaseModel)

#: The longest body that is read.
MAX_BODY_BYTES = 4 * 1024 * 1024

_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
_KEY = re.compile(r"[\x20-\x7e]{1,200}")
_EVENT_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")


def _whole_number(value: object) -> object:
    """A query's number is digits and nothing else."""
    if isinstance(value, str) and not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", value):
        raise ValueError("it should be a whole number; give a whole number")
    return value


def _yes_or_no(value: object) -> object:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("it should be true or false; give one of them")
    return value


Limit = Annotated[int, Field(ge=1, le=500), BeforeValidator(_whole_number)]
YesOrNo = Annotated[bool, BeforeValidator(_yes_or_no)]


class Query(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NoQuery(Query):
    """The query of a request that takes none."""


class PageQuery(Query):
    """Which part of a list is asked for."""

    #: How many at most.
    limit: Limit = 50
    #: The `next` of the page before.
    cursor: Annotated[str, Field(min_length=1, max_length=500, pattern="^[!-~]+$")] | None = None


class DiffsQuery(PageQuery):
    """Which iteration's differences are asked for, and which part of them."""

    #: They may be long.
    limit: Annotated[int, Field(ge=1, le=20), BeforeValidator(_whole_number)] = 10
    iteration: Annotated[int, Field(ge=1, le=10_000), BeforeValidator(_whole_number)] | None = None


class SessionsQuery(SessionFilter, PageQuery):
    """Which sessions are asked for, and which part of them."""

    def wanted(self) -> SessionFilter:
        """The filter alone."""
        names = SessionFilter.model_fields
        return SessionFilter.model_construct(**{name: getattr(self, name) for name in names})


class DeleteQuery(Query):
    #: Whether a session that has not ended is aborted first.
    force: YesOrNo = False


class ExportQuery(Query):
    #: Everything as one JSON object, or the ledger alone as JSON Lines.
    part: Literal["all", "ledger"] = "all"


class TranscriptQuery(PageQuery):
    #: A page of it as JSON, or all of it as Markdown, for people.
    format: Literal["json", "markdown"] = "json"


class EventsQuery(Query):
    #: How many at most.
    limit: Limit = 50
    #: The id of the last event that is known already.
    after: Annotated[str, Field(pattern=f"^{_EVENT_ID.pattern}$")] | None = None


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class NoBody(Body):
    """The body of a call that takes none: absent, or an empty object."""


def _is_position(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _point(value: object) -> object:
    """What can be no point at all: the arms of the union would complain each of its own."""
    is_name = isinstance(value, str) and value.strip() and len(value) <= 1000
    is_list = isinstance(value, list) and 1 <= len(value) <= 50 and all(map(_is_position, value))
    if value is None or is_name or is_list or _is_position(value):
        return value
    raise ValueError("it is no point; give an address, a label, or positions from 0: 2, or [0, 1]")


class Resume(Body):
    max_iterations: Annotated[int, Field(ge=1, le=10_000)] | None = None
    #: Limits that are to hold from now on; one that was passed has to be raised.
    budget: Budget | None = None
    #: Of a flow: go on by what it was started with, or by what its file says now, if that fits.
    as_: Annotated[Literal["old", "new"], Field(alias="as")] = "old"
    #: The last point that counts as done: an address, a label, or positions from 0 (`1[2]/0`).
    #: What comes after it runs anew; without it the session goes on where it was.
    #: An address, a label, or zero-based positions: one as a number, several as a list or `2/0`.
    after: Annotated[
        Annotated[str, Field(min_length=1, max_length=1000)]
        | Annotated[int, Field(ge=0)]
        | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=50)]
        | None,
        BeforeValidator(_point),
    ] = None

    @property
    def position(self) -> str | None:
        """The point, as it is named in words."""
        if isinstance(self.after, list):
            return "/".join(map(str, self.after))
        return None if self.after is None else str(self.after)


class Exit(Body):
    reason: Annotated[str, Field(min_length=1, max_length=20_000)]


class Rehome(Body):
    place: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class Abort(Body):
    reason: Annotated[str, Field(max_length=20_000)] = ""


class Meant(SessionFilter):
    """Which sessions a bulk operation is for: at least one thing must be said of them."""

    @model_validator(mode="before")
    @classmethod
    def _says_something(cls, given: object) -> object:
        if isinstance(given, dict):
            if not given:
                raise ValueError("it would be every session; name at least a status, kind or time")
            for name, value in given.items():
                if value is None or value == []:
                    raise ValueError(f"{name} says nothing; give it a value or leave it out")
        return given


class Bulk(Body):
    verb: BulkVerb
    filter: Meant
    #: Count and name the first ones, and do nothing.
    dry_run: bool = True
    #: For `abort`: what the sessions are told.
    reason: Annotated[str, Field(max_length=20_000)] = ""
    #: For `delete`: abort those first that have not ended.
    force: bool = False
    #: The `next` of the call before: go on behind where it ended.
    cursor: Annotated[str, Field(min_length=1, max_length=500, pattern="^[!-~]+$")] | None = None


class Answers(Body):
    model_config = ConfigDict(str_strip_whitespace=True)

    #: What the person says.
    text: Annotated[str, Field(min_length=1, max_length=200_000)]
    #: The step that asked, by its address, its label or its position in the file; needed only where
    #: several wait.
    address: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None


def value() -> JsonValue:
    """The body, whatever JSON it is. Raises Refused."""
    return _json()


def document() -> AnyDocument:
    """The document to run. Raises Refused."""
    given = _json()
    try:
        return _DOCUMENT.validate_python(given)
    except ValidationError as error:
        raise invalid(field_problems(error, given)) from None


def body(model: type[M]) -> M:
    """The body of a call; an absent one is an empty object. Raises Refused."""
    given = _json() if request.get_data(cache=True) else {}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid(field_problems(error, given)) from None


def query(model: type[M]) -> M:
    """The parameters of the query; unknown and repeated ones are refused. Raises Refused."""
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
        problems = field_problems(error, given, place="query")
        # A parameter goes by its name, whichever of its values is wrong.
        named = {p.field.partition(".")[0]: p for p in reversed(problems)}
        raise invalid(
            tuple(p.model_copy(update={"field": name}) for name, p in reversed(named.items()))
        ) from None


def if_match() -> Seen | None:
    """What the sender saw of the session that is to be changed; None where any will do."""
    given = request.headers.get("If-Match")
    if given is None or given.strip() == "*":
        return None
    tags = (seen_in(tag) for tag in given.split(","))
    # A tag that is none of ours is of no session that there is.
    return Seen(*next((tag for tag in tags if tag is not None), ("", 0)))


def idempotency_key() -> str | None:
    """The sender's key for this submit. Raises Refused."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise malformed(
            "the Idempotency-Key cannot be used",
            field="Idempotency-Key",
            hint="give 1 to 200 printable ASCII characters",
        )
    return key


def last_event_id() -> str | None:
    """Where the sender's stream broke off. Raises Refused."""
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
    """What the body says; it must say that it is JSON."""
    if request.mimetype != "application/json":
        raise wrong_media_type(request.mimetype)
    if request.content_encoding not in (None, "identity"):
        raise wrong_media_type(f"encoded as {request.content_encoding}")
    return parsed(request.get_data(cache=True))
