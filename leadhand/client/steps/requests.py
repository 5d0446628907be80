"""The calls about single steps of a session (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from leadhand.client.calls import Call
from leadhand.client.paths import session_path
from leadhand.models.etags import etag
from leadhand.models.views import SessionView


def skip(session: str, step: str, reason: str | None, seen: SessionView | None) -> Call:
    """The call that skips a step. A repeated one changes nothing."""
    return _post(session, "skip", {"step": step, "reason": reason}, seen)


def _post(
    session: str, verb: str, body: Mapping[str, JsonValue], seen: SessionView | None = None
) -> Call:
    given = {name: value for name, value in body.items() if value is not None}
    headers = {} if seen is None else {"If-Match": etag(seen.status, seen.updated_at)}
    return Call(
        "POST", session_path(session, verb), headers=headers, content=json.dumps(given).encode()
    )
