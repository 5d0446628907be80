"""Says yes: models as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from flask import Response, request
from pydantic import BaseModel

from app.views import SessionView
from leadhand.etags import etag

JSON_LINES = "application/jsonl"
MARKDOWN = "text/markdown; charset=utf-8"


def answer(
    model: BaseModel, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """The model as the response's body."""
    response = Response(model.model_dump_json(), status, headers=dict(headers or {}))
    response.headers["Content-Type"] = "application/json"
    response.headers["Cache-Control"] = "no-store"
    return response


def session_answer(
    view: SessionView, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """The session with its tag; only the tag for a reader who has it as it is."""
    # The time that it has used goes on by itself, and is no news of the session.
    text = view.model_dump_json(exclude={"budget": {"wall_s"}})
    shown = hashlib.sha256(text.encode()).hexdigest()[:16]
    tag = etag(view.status, view.updated_at, shown)
    if status == 200 and request.if_none_match.contains_weak(tag.removeprefix("W/").strip('"')):
        response = Response(status=304)
    else:
        response = answer(view, status, headers=headers)
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def attachment(text: str, media_type: str, name: str) -> Response:
    """A text to be kept under a name."""
    response = Response(text)
    response.headers["Content-Type"] = media_type
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "no-store"
    return response
