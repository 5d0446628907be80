"""Reads what a request brings: its body, its query and its headers, strictly."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar

from flask import request
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from api.fields import field_problems
from api.refusals import invalid, malformed, wrong_media_type
from leadhand.documents import AnyDocument
from leadhand.problems import FieldProblem

M = TypeVar("M", bound=BaseModel)

#: The longest body that is read.
MAX_BODY_BYTES = 4 * 1024 * 1024

_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
_KEY = re.compile(r"[\x20-\x7e]{1,200}")
_EVENT_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")
_WHERE = re.compile(r" at line (\d+) column (\d+)$")


class Query(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NoQuery(Query):
    """The query of a request that takes none."""


class PageQuery(Query):
    """Which part of a list is asked for."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class SessionsQuery(PageQuery):
    status: (
        Literal[
            "active",
            "waiting",
            "stopping",
            "stopped",
            "exiting",
            "exited",
            "aborting",
            "aborted",
            "completed",
            "failed",
        ]
        | None
    ) = None
    kind: Literal["loop", "workflow"] | None = None


class EventsQuery(Query):
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    #: The id of the last event that is known already.
    after: Annotated[str, Field(pattern=f"^{_EVENT_ID.pattern}$")] | None = None


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class NoBody(Body):
    """The body of a call that takes none: absent, or an empty object."""


class Resume(Body):
    max_iterations: Annotated[int, Field(ge=1, le=10_000)] | None = None


class Exit(Body):
    reason: Annotated[str, Field(min_length=1, max_length=20_000)]


class Rehome(Body):
    place: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class Abort(Body):
    reason: Annotated[str, Field(max_length=20_000)] = ""


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
        if len(values) > 1:
            message = f"it is given {len(values)} times"
            problem = FieldProblem(field=name, message=message, hint="give it once", place="query")
            raise invalid((problem,))
        given[name] = values[0]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid(field_problems(error, given, place="query")) from None


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


def _json() -> JsonValue:
    """What the body says; it must say that it is JSON."""
    if request.mimetype != "application/json":
        raise wrong_media_type(request.mimetype)
    if request.content_encoding not in (None, "identity"):
        raise wrong_media_type(f"encoded as {request.content_encoding}")
    try:
        parsed: JsonValue = from_json(request.get_data(cache=True), allow_inf_nan=False)
    except ValueError as error:
        raise malformed(_parser_words(str(error)), hint="send one JSON object in UTF-8") from None
    return parsed


def _parser_words(text: str) -> str:
    """What the parser says, with the place first.

    >>> _parser_words("expected value at line 1 column 7")
    'the body is no JSON: line 1, column 7: expected value'
    """
    found = _WHERE.search(text)
    if found is None:
        return f"the body is no JSON: {text}"
    line, column = found.groups()
    return f"the body is no JSON: line {line}, column {column}: {text[: found.start()]}"
