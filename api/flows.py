"""REST routes for flows: list, show, run and validate."""

from __future__ import annotations

from flask import Blueprint, Response

from api import requests
from api.auth import allow, current_caller, current_owner, may_bring_commands
from api.folder import FolderQuery, folder_of_command, found_here
from api.responses import answer, session_answer
from app.engine import Engine
from leadhand.flows.documents import FlowRun
from leadhand.models.views import FlowView, Page


class Flows:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_all(self) -> Response:
        """GET /v1/flows: list the flows of the catalog that applies to the caller's folder."""
        found = found_here(self._engine, requests.query(FolderQuery))
        catalog = self._engine.catalog_of(found.folder, found.free)
        return answer(Page[FlowView](items=catalog.flows()))

    def one(self, name: str) -> Response:
        """GET /v1/flows/NAME: show a flow."""
        found = found_here(self._engine, requests.query(FolderQuery))
        return answer(self._engine.catalog_of(found.folder, found.free).flow(name))

    def run(self, name: str) -> Response:
        """POST .../runs: start a session that runs a flow of the catalog; needs no scope exec:free.

        The operator wrote the flow, or the user has approved that of a folder.
        Only the command that prepares a worktree is the caller's.
        """
        caller = current_caller()
        policy = requests.query(requests.SubmitQuery).policy_for(is_child=caller is not None)
        key = requests.idempotency_key()
        asked = requests.body(FlowRun)
        free = may_bring_commands(self._engine)
        allow(asked, free=free)
        if caller is not None:
            submitted = self._engine.spawner.flow(
                caller, name, asked, key=key, on_parent_end=policy
            )
        else:
            submitted = self._engine.submit.flow(
                name,
                asked,
                idempotency_key=key,
                owner=current_owner(),
                free=free,
                folder=folder_of_command(),
            )
        view = self._engine.queries.session(submitted.session)
        return session_answer(view, 202, headers={"Location": f"/v1/sessions/{view.id}"})

    def validate(self) -> Response:
        """POST /v1/flows/validate: check a flow, or a graph, without running it."""
        requests.query(requests.NoQuery)
        free = may_bring_commands(self._engine)
        checks, folder = self._engine.flow_checks, folder_of_command()
        return answer(checks.check(requests.value(), folder=folder, free=free))


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of the flow catalog."""
    flows = Flows(engine)
    routes = Blueprint("flows", __name__, url_prefix="/v1/flows")
    routes.add_url_rule("", "listed", flows.list_all)
    routes.add_url_rule("/validate", "validate", flows.validate, methods=["POST"])
    routes.add_url_rule("/<flow:name>", "one", flows.one)
    routes.add_url_rule("/<flow:name>/runs", "run", flows.run, methods=["POST"])
    return routes
