"""Says yes: models as JSON."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Response
from pydantic import BaseModel


def answer(
    model: BaseModel, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """The model as the response's body."""
    response = Response(model.model_dump_json(), status, headers=dict(headers or {}))
    response.headers["Content-Type"] = "application/json"
    response.headers["Cache-Control"] = "no-store"
    return response
