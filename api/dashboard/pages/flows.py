"""The flows of the catalog: what each does, why one is disabled, and a form that runs it."""

from __future__ import annotations

from flask import Blueprint, Response, g, request
from pydantic import JsonValue, ValidationError

from api.auth import current_owner
from api.dashboard.render import page
from api.dashboard.replies import go_to
from api.drawings.routes import SVG, drawing_response
from api.problem_types import invalid
from api.validation_errors import field_problems
from app.engine import Engine
from app.queries.filters import SessionFilter
from app.security.api_tokens import Scope
from leadhand.flows.documents import FlowRun

#: Runs of a flow that its page lists.
RUNS = 20
#: Prefix of the names of a flow's inputs in its form.
INPUT = "input."


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page of the flow catalog."""

    def flows() -> Response:
        return page("flows.html", flows=engine.catalog.flows())

    def flow(name: str) -> Response:
        found = engine.catalog.flow(name)
        wanted = SessionFilter(kind="flow", name=name)
        runs = engine.queries.sessions(wanted, limit=RUNS)
        return page("flow.html", flow=found, runs=runs)

    def drawing(name: str) -> Response:
        return drawing_response(engine.drawings.flow_svg(engine.catalog.document(name)), SVG)

    def run_flow(name: str) -> Response:
        known = {one.name for one in engine.catalog.flow(name).inputs}
        sent = request.form.to_dict()
        inputs: dict[str, JsonValue] = {
            one: sent[INPUT + one] for one in known if sent.get(INPUT + one, "") != ""
        }
        values: dict[str, JsonValue] = {"inputs": inputs}
        if sent.get("folder"):
            values["working_folder"] = sent["folder"]
        try:
            run = FlowRun.model_validate(values)
        except ValidationError as error:
            raise invalid(field_problems(error, values, FlowRun)) from None
        submitted = engine.submit.flow(
            name,
            run,
            idempotency_key=sent.get("key") or None,
            owner=current_owner(),
            free=Scope.EXEC_FREE in g.visitor.scopes,
        )
        return go_to(f"/ui/sessions/{submitted.session}")

    routes.add_url_rule("/flows", "flows", flows)
    routes.add_url_rule("/flows/<name>", "flow", flow)
    routes.add_url_rule("/flows/<name>/drawing.svg", "flow_drawing", drawing)
    routes.add_url_rule("/flows/<name>/runs", "run_flow", run_flow, methods=["POST"])
