"""The calls about single steps of a session (pure)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence

from pydantic import JsonValue, ValidationError

from leadhand.client.calls import Call
from leadhand.client.paths import session_path
from leadhand.errors import local_error
from leadhand.models.documents import Checker
from leadhand.models.etags import etag
from leadhand.models.problems import Kind
from leadhand.models.validation_messages import first_error
from leadhand.models.views import SessionView

#: A checker: a command, or the fields of one.
CheckerSpec = str | Mapping[str, str] | Checker


def skip(session: str, step: str, reason: str | None, seen: SessionView | None) -> Call:
    """Builds the request that skips a step; a repeated one changes nothing."""
    return _post(session, "skip", {"step": step, "reason": reason}, seen)


def fork(session: str, idempotency_key: str | None, **body: JsonValue) -> Call:
    """Builds the request that forks a session; the same key again returns the same fork."""
    return _post(session, "fork", body, key=idempotency_key or uuid.uuid4().hex)


def rerun(
    session: str,
    idempotency_key: str | None,
    checkers: Sequence[CheckerSpec] | None,
    **body: JsonValue,
) -> Call:
    """Builds the request that runs a session's document again; the same key is executed once."""
    named = None if checkers is None else [_checker(one) for one in checkers]
    return _post(
        session, "rerun", {**body, "checkers": named}, key=idempotency_key or uuid.uuid4().hex
    )


def _checker(given: CheckerSpec) -> JsonValue:
    """A checker as a document has it. Raises RequestInvalid."""
    try:
        checker = Checker.model_validate(given)
    except ValidationError as error:
        text = f"checkers: {first_error(error)}"
        raise local_error(Kind.INVALID, text, field="checkers") from None
    return checker.model_dump(mode="json", exclude_unset=True)


def _post(
    session: str,
    verb: str,
    body: Mapping[str, JsonValue],
    seen: SessionView | None = None,
    *,
    key: str | None = None,
) -> Call:
    given = {name: value for name, value in body.items() if value is not None}
    headers = {} if seen is None else {"If-Match": etag(seen.status, seen.updated_at)}
    if key is not None:
        headers["Idempotency-Key"] = key
    return Call(
        "POST", session_path(session, verb), headers=headers, content=json.dumps(given).encode()
    )
