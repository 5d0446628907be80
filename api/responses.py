"""Builds responses from models."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from flask import Response, request
from pydantic import BaseModel

from leadhand.models.etags import etag, plan_etag
from leadhand.models.views.plan import PlanView
from leadhand.models.views.session import SessionView

MARKDOWN = "text/markdown; charset=utf-8"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


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
