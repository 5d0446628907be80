"""The tools over HTTP: what each takes, and where it can be used."""

from __future__ import annotations

from flask import Blueprint, Response

from api import bodies
from api.answers import answer
from api.port import Engine
from app.views import Page, ToolView


def blueprint(engine: Engine) -> Blueprint:
    routes = Blueprint("tools", __name__, url_prefix="/v1/tools")

    def listed() -> Response:
        bodies.query(bodies.NoQuery)
        return answer(Page[ToolView](items=engine.tools()))

    routes.add_url_rule("", "listed", listed)
    return routes
