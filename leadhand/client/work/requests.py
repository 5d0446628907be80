"""The calls about the local steps of a session (pure)."""

from __future__ import annotations

from pydantic import BaseModel

from leadhand.client.calls import Call
from leadhand.client.paths import session_path
from leadhand.models.local_work import ClaimWork


def call(session: str, verb: str, body: BaseModel) -> Call:
    """Builds the request of a verb (claim, beat, settle) about a session's local steps."""
    content = body.model_dump_json().encode()
    waits_s = body.wait_s if isinstance(body, ClaimWork) else 0.0
    return Call("POST", session_path(session, f"work/{verb}"), content=content, waits_s=waits_s)
