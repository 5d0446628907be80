"""The flows of the catalog: what each does, why one is disabled, and a form that runs it."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Blueprint, Response, request
from pydantic import JsonValue, ValidationError

from api.auth import current_owner, may_bring_commands
from api.dashboard.render import page
from api.dashboard.replies import go_to
from api.requests import drawing_response
from api.validation_errors import field_problems
from app.engine import Engine
from app.fleet.flow_catalog import Catalog
from app.sessions.drawings import draw_flow
from leadhand.contract.sessions import SVG, SessionsWanted
from leadhand.errors import RequestInvalid
from leadhand.flows.documents import FlowRun
from leadhand.models.views.shared import FlowView

#: Runs of a flow that its page lists.
RUNS = 20
#: Sessions in whose folders flows are looked for.
RECENT = 50
#: Prefix of the names of a flow's inputs in its form.
INPUT = "input."


class FlowPages:
    """One method per route; `folder` is the one that defines a flow, '' the services' own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def flows(self) -> Response:
        """GET /ui/flows: list the flows of the services, and those of folders with sessions."""
        recent = self._engine.queries.sessions(SessionsWanted(), limit=RECENT).items
        own = (self._engine.definitions.flows_of(view.folder) for view in recent)
        folders = dict.fromkeys(str(one.parent) for one in own if one is not None)
        found = {
            folder: _catalog(self._engine, folder).flows() for folder in ("", *sorted(folders))
        }
        return page("flows.html", folders={name: some for name, some in found.items() if some})

    def flow(self, name: str) -> Response:
        """GET /ui/flows/NAME: show a flow, its runs and the form that runs it."""
        folder = request.args.get("folder", "")
        found = _catalog(self._engine, folder).flow(name)
        runs = self._engine.queries.sessions(SessionsWanted(kind="flow", name=name), limit=RUNS)
        return page("flow.html", flow=found, runs=runs, folder=folder)

    def drawing(self, name: str) -> Response:
        """GET .../drawing.svg: return the drawing of a flow as SVG."""
        document = _catalog(self._engine, request.args.get("folder", "")).document(name)
        return drawing_response(draw_flow(document), SVG)

    def run_flow(self, name: str) -> Response:
        """POST .../runs: start a flow with the inputs of the form, and redirect to its session."""
        sent = request.form.to_dict()
        folder = sent.get("defined_in", "")
        submitted = self._engine.submit.flow(
            name,
            self._run_of(_catalog(self._engine, folder).flow(name), sent),
            idempotency_key=sent.get("key") or None,
            owner=current_owner(),
            free=may_bring_commands(self._engine),
            folder=folder,
        )
        return go_to(f"/ui/sessions/{submitted.session}")

    def _run_of(self, flow: FlowView, sent: Mapping[str, str]) -> FlowRun:
        inputs: dict[str, JsonValue] = {
            one.name: sent[INPUT + one.name]
            for one in flow.inputs
            if sent.get(INPUT + one.name, "") != ""
        }
        values: dict[str, JsonValue] = {"inputs": inputs}
        if sent.get("folder"):
            values["working_folder"] = sent["folder"]
        try:
            return FlowRun.model_validate(values)
        except ValidationError as error:
            raise RequestInvalid.of_fields(field_problems(error, values, FlowRun)) from None


def _catalog(engine: Engine, folder: str) -> Catalog:
    """The flows that the visitor may run from a folder; others are disabled."""
    return engine.catalog_of(folder, may_bring_commands(engine))


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the pages of the flow catalog."""
    pages = FlowPages(engine)
    routes.add_url_rule("/flows", "flows", pages.flows)
    routes.add_url_rule("/flows/<name>", "flow", pages.flow)
    routes.add_url_rule("/flows/<name>/drawing.svg", "flow_drawing", pages.drawing)
    routes.add_url_rule("/flows/<name>/runs", "run_flow", pages.run_flow, methods=["POST"])
