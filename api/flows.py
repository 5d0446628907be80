"""Flows over HTTP: those of the catalog, running one, and checking one that is being written."""

from __future__ import annotations

from flask import Blueprint, Response

from api import bodies
from api.answers import answer, session_answer
from api.auth import current_owner
from api.port import Engine
from app.views import FlowView, Page
from leadhand.flow_documents import FlowRun


class Flows:
    """One method for each thing that can be done with flows."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def listed(self) -> Response:
        bodies.query(bodies.NoQuery)
        return answer(Page[FlowView](items=self._engine.flows()))

    def one(self, name: str) -> Response:
        bodies.query(bodies.NoQuery)
        return answer(self._engine.flow(name))

    def run(self, name: str) -> Response:
        """What a flow of the catalog runs is its operator's word: it needs no exec:free."""
        bodies.query(bodies.NoQuery)
        key = bodies.idempotency_key()
        asked = bodies.body(FlowRun)
        submitted = self._engine.run_flow(name, asked, idempotency_key=key, owner=current_owner())
        view = self._engine.session(submitted.session)
        return session_answer(view, 202, headers={"Location": f"/v1/sessions/{view.id}"})

    def validate(self) -> Response:
        bodies.query(bodies.NoQuery)
        return answer(self._engine.check_flow(bodies.value()))


def blueprint(engine: Engine) -> Blueprint:
    flows = Flows(engine)
    routes = Blueprint("flows", __name__, url_prefix="/v1/flows")
    routes.add_url_rule("", "listed", flows.listed)
    routes.add_url_rule("/validate", "validate", flows.validate, methods=["POST"])
    routes.add_url_rule("/<flow:name>", "one", flows.one)
    routes.add_url_rule("/<flow:name>/runs", "run", flows.run, methods=["POST"])
    return routes
