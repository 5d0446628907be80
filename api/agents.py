"""The agents over HTTP: what they are, and where they can be used."""

from __future__ import annotations

from flask import Blueprint, Response

from api import bodies
from api.answers import answer
from api.port import Engine
from app.views import AgentView, Page


def blueprint(engine: Engine) -> Blueprint:
    routes = Blueprint("agents", __name__, url_prefix="/v1/agents")

    def listed() -> Response:
        bodies.query(bodies.NoQuery)
        return answer(Page[AgentView](items=engine.agents()))

    routes.add_url_rule("", "listed", listed)
    return routes
