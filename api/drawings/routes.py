"""The REST route for the drawing of a session: SVG, or text for a terminal."""

from __future__ import annotations

from typing import Annotated, Literal

from flask import Blueprint, Response
from pydantic import Field

from api import requests
from app.engine import Engine

SVG = "image/svg+xml"
TEXT = "text/plain"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class DrawingQuery(requests.Query):
    """How to draw a session."""

    format: Literal["svg", "text"] = "svg"
    #: Of a text: the characters of a line.
    width: Annotated[int, Field(ge=20, le=400), requests.DIGITS] = 120


def drawing_response(text: str, media_type: str) -> Response:
    """Returns a drawing (SVG or text) as a response that is forbidden to load or run anything."""
    response = Response(text)
    response.headers["Content-Type"] = media_type
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = _POLICY
    return response


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the route of drawings."""
    routes = Blueprint("drawings", __name__, url_prefix="/v1/sessions")

    def one(session: str) -> Response:
        """GET .../drawing: draw a session."""
        asked = requests.query(DrawingQuery)
        if asked.format == "text":
            text, media_type = engine.drawings.text(session, asked.width), TEXT
        else:
            text, media_type = engine.drawings.svg(session), SVG
        return drawing_response(text, media_type)

    routes.add_url_rule("/<session>/drawing", "one", one)
    return routes
