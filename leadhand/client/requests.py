"""What operations build their requests from, and the parsers of the responses (pure)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from leadhand.client.calls import Answer, Call, Param
from leadhand.client.operation import Ask
from leadhand.client.paths import path_of
from leadhand.contract.operation import Operation
from leadhand.errors import AnswerUnreadable
from leadhand.models.etags import etag
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


def request(
    operation: Operation[Any],
    *path: str,
    body: Any = None,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    waits_s: float = 0.0,
    **params: Param | None,
) -> Call:
    """Builds the request of an operation: with the values of its path, in order, and of its query.

    Parameters of the query that are None are left out. The body becomes JSON, by default an empty
    object where the operation has one; `content` is one that is JSON already.
    """
    if content is None and operation.body is not None:
        content = dumped({} if body is None else body)
    where = path_of(operation, *path)
    return Call(operation.method, where, given(**params), headers or {}, content, waits_s)


def given(**fields: T | None) -> dict[str, T]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def dumped(body: Any) -> bytes:
    """Returns data, in which there may be models, as JSON."""
    return _JSON.dump_json(body)


def strictly_dumped(body: Any) -> bytes:
    """Returns data of the user's as JSON. Raises ValueError, TypeError for what JSON has not."""
    return json.dumps(body, allow_nan=False).encode()


def idempotent(key: str | None = None) -> dict[str, str]:
    """Returns the Idempotency-Key header of a request, by default with a new key."""
    return {"Idempotency-Key": key or uuid.uuid4().hex}


def if_match(seen: SessionView | None) -> dict[str, str]:
    """Returns the header by which a call is refused if the session is not as it was seen."""
    return {} if seen is None else {"If-Match": etag(seen.status, seen.updated_at)}


def reads(model: type[M], call: Call) -> Ask[M]:
    """Asks for a model."""
    return Ask(call, lambda answer: parsed(model, answer))


def items(page: type[Page[T]], call: Call) -> Ask[list[T]]:
    """Asks for the items of a page that has all."""
    return Ask(call, lambda answer: parsed(page, answer).items)


def reads_text(call: Call) -> Ask[str]:
    """Asks for a text."""
    return Ask(call, lambda answer: answer.checked().text)


def succeeds(call: Call) -> Ask[None]:
    """Asks for a success."""
    return Ask(call, _no_result)


def _no_result(answer: Answer) -> None:
    answer.checked()


def parsed(model: type[M], answer: Answer) -> M:
    """Parses an answer's JSON as the given model. Raises Refused, or AnswerUnreadable."""
    response: httpx2.Response = answer.checked()
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise AnswerUnreadable(str(response.url), response.status_code) from error
