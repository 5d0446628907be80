"""Parses bodies, queries and headers of requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar, get_origin

from flask import request
from gunicorn.http.errors import ParseException
from pydantic import BaseModel, JsonValue, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge

from api.json_body import parse_body
from api.validation_errors import field_problems
from app.domain.control import Seen
from leadhand.contract.bodies import EVENT_ID_FORM, KEY_FORM
from leadhand.errors import Malformed, Refused, RequestInvalid, of_status
from leadhand.models.etags import parse_etag
from leadhand.models.problems import FieldProblem

M = TypeVar("M", bound=BaseModel)

#: Maximum size of a body.
MAX_BODY_BYTES = 4 * 1024 * 1024

_KEY = re.compile(KEY_FORM)
_EVENT_ID = re.compile(EVENT_ID_FORM)


def value() -> JsonValue:
    """Parses the body of the current request as any JSON value. Raises Refused if it is invalid."""
    return _json()


def body(model: type[M]) -> M:
    """Parses the request's body as this model; an absent one is an empty object. Raises Refused."""
    given = _json() if _read_bytes() else {}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise RequestInvalid.of_fields(field_problems(error, given, model)) from None


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
            raise RequestInvalid.of_fields((problem,))
        given[name] = values[0]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = field_problems(error, given, model, place="query")
        # A parameter is reported once, whichever of its values is invalid.
        named = {p.field.partition(".")[0]: p for p in reversed(problems)}
        raise RequestInvalid.of_fields(
            tuple(p.model_copy(update={"field": name}) for name, p in reversed(named.items()))
        ) from None


def seen_session(given: str | None) -> Seen | None:
    """Parses an If-Match header with a session's ETags; None if it is absent or `*`."""
    if given is None or given.strip() == "*":
        return None
    tags = (parse_etag(tag) for tag in given.split(","))
    # An unknown tag matches no session.
    return Seen(*next((tag for tag in tags if tag is not None), ("", 0)))


def idempotency_key() -> str | None:
    """Returns the header Idempotency-Key; None if absent. Raises Refused if it is malformed."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise Malformed(
            "the Idempotency-Key cannot be used",
            field="Idempotency-Key",
            hint="give 1 to 200 printable ASCII characters",
        )
    return key


def last_event_id() -> str | None:
    """Returns the header Last-Event-ID; None if absent. Raises Refused if it is no event id."""
    last = request.headers.get("Last-Event-ID")
    if last is not None and not _EVENT_ID.fullmatch(last):
        raise Malformed(
            "the Last-Event-ID is not the id of an event",
            field="Last-Event-ID",
            hint="give the id of an event, such as 1700000000000-0, or leave it out",
        )
    return last


def _is_list(model: type[BaseModel], name: str) -> bool:
    """Whether a parameter may be given several times."""
    return get_origin(model.model_fields[name].annotation) is Sequence


def _json() -> JsonValue:
    """Parse the body; its Content-Type must be JSON."""
    if request.mimetype != "application/json":
        raise wrong_media_type(request.mimetype)
    if request.content_encoding not in (None, "identity"):
        raise wrong_media_type(f"encoded as {request.content_encoding}")
    return parse_body(_read_bytes())


def wrong_media_type(media_type: str) -> Refused:
    """Returns the error for a body that is not declared as JSON."""
    detail = f"the body is {media_type!r}" if media_type else "the body has no Content-Type"
    return of_status(415, detail, hint="send the header 'Content-Type: application/json'")


def _read_bytes() -> bytes:
    """Read the bytes of the body. Raises Refused or RequestEntityTooLarge."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge
    try:
        received = request.get_data(cache=True)
    except ParseException as error:
        raise Malformed(
            f"the chunks of the body cannot be read: {str(error)[:200]}",
            hint="send each chunk as its size in hexadecimal, its bytes and two line ends",
        ) from None
    # Werkzeug truncates a body of unknown length at its limit, which is one byte higher.
    if len(received) > MAX_BODY_BYTES:
        raise RequestEntityTooLarge
    return received
