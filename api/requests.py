"""Parses bodies, queries and headers of requests, and builds the responses."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar, get_origin

from flask import Response, request
from gunicorn.http.errors import ParseException
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import from_json
from werkzeug.exceptions import RequestEntityTooLarge

from api.validation_errors import field_problems
from app.core.states import Seen
from app.redaction import shortened
from leadhand.contract.operation import EVENT_ID_FORM, KEY_FORM
from leadhand.errors import Malformed, Refused, RequestInvalid, of_status
from leadhand.models.etags import etag, parse_etag, plan_etag
from leadhand.models.problems import FieldProblem
from leadhand.models.views.plan import PlanView
from leadhand.models.views.session import SessionView

#: Maximum nesting depth, so that recursive code over documents is safe.
MAX_DEPTH = 64
#: Up to this limit every whole number is exact as a float.
_EXACT = 2.0**53
_WHERE = re.compile(r" at line (\d+) column (\d+)$")
#: The parser's error for a body that is nested too deeply.
_PARSERS_DEPTH = "recursion limit exceeded"
M = TypeVar("M", bound=BaseModel)
#: Maximum size of a body.
MAX_BODY_BYTES = 4 * 1024 * 1024
_KEY = re.compile(KEY_FORM)
_EVENT_ID = re.compile(EVENT_ID_FORM)
MARKDOWN = "text/markdown; charset=utf-8"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def parse_body(body: bytes) -> JsonValue:
    """Parses a request body as JSON. Raises Refused if invalid, too deep or with a name twice."""
    try:
        found: JsonValue = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        text = str(error)
        if text.startswith(_PARSERS_DEPTH):
            raise _too_deep() from None
        raise Malformed(_parser_words(text), hint="send one JSON object in UTF-8") from None
    whole = _make_whole(found)
    json.loads(body, object_pairs_hook=_once_each, parse_int=str, parse_float=str)
    return whole


def _make_whole(given: JsonValue) -> JsonValue:
    """Converts whole floats to integers in place: in JSON, 3 and 3.0 are the same number.

    It goes through the value level by level, which a deep value makes no slower. Raises Refused if
    it is too deep.

    >>> _make_whole({"a": [3.0, 3.5, "3.0", True]})
    {'a': [3, 3.5, '3.0', True]}
    """
    around: list[JsonValue] = [given]
    level: list[JsonValue] = [around]
    for _ in range(MAX_DEPTH + 1):
        level = [part for one in level for part in _mend_numbers(one)]
    if level:
        raise _too_deep()
    return around[0]


def _mend_numbers(value: JsonValue) -> list[JsonValue]:
    """Converts the whole floats in a list or an object; returns the lists and objects in it."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            if isinstance(one, float) and one.is_integer() and abs(one) < _EXACT:
                value[number] = int(one)
        return [one for one in value if isinstance(one, list | dict)]
    assert isinstance(value, dict)
    for name, one in value.items():
        if isinstance(one, float) and one.is_integer() and abs(one) < _EXACT:
            value[name] = int(one)
    return [one for one in value.values() if isinstance(one, list | dict)]


def _once_each(pairs: Sequence[tuple[str, object]]) -> None:
    """Refuse duplicate names in an object. Raises Refused."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise Malformed(
                f"the body gives {shortened(name)} twice in one object",
                field=name[:80],
                hint="give each name once",
            )
        seen.add(name)


def _too_deep() -> Refused:
    return Malformed(
        f"the body is nested deeper than {MAX_DEPTH} levels",
        hint=f"nest lists and objects at most {MAX_DEPTH} levels deep",
    )


def _parser_words(text: str) -> str:
    """Formats the parser's error with the position first.

    >>> _parser_words("expected value at line 1 column 7")
    'the body is no JSON: line 1, column 7: expected value'
    """
    found = _WHERE.search(text)
    if found is None:
        return f"the body is no JSON: {text}"
    line, column = found.groups()
    return f"the body is no JSON: line {line}, column {column}: {text[: found.start()]}"


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


def answer(
    model: BaseModel, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns a JSON response with a model as its body."""
    response = Response(model.model_dump_json(), status, headers=dict(headers or {}))
    response.headers["Content-Type"] = "application/json"
    response.headers["Cache-Control"] = "no-store"
    return response


def session_answer(
    view: SessionView, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns a session with its ETag; status 304 if the client's copy is current."""
    # The used wall time changes continuously, which is no change of the session.
    text = view.model_dump_json(exclude={"budget": {"wall_s"}, "work_token": True})
    shown = hashlib.sha256(text.encode()).hexdigest()[:16]
    tag = etag(view.status, view.updated_at, shown)
    if status == 200 and request.if_none_match.contains_weak(tag.removeprefix("W/").strip('"')):
        response = Response(status=304)
    else:
        response = answer(view, status, headers=headers)
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def plan_answer(view: PlanView, *, changed: bool = False, status: int = 200) -> Response:
    """Returns a plan with its ETag; status 304 for a read if the client's copy is current."""
    tag = plan_etag(view.version)
    if not changed and request.if_none_match.contains_weak(tag.strip('"')):
        response = Response(status=304)
    else:
        response = answer(view, status)
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def attachment(text: str, media_type: str, name: str) -> Response:
    """Returns a text as a download with a file name."""
    response = Response(text)
    response.headers["Content-Type"] = media_type
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "no-store"
    return response


def drawing_response(text: str, media_type: str) -> Response:
    """Returns a drawing (SVG or text) as a response that is forbidden to load or run anything."""
    response = Response(text)
    response.headers["Content-Type"] = media_type
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = _POLICY
    return response
