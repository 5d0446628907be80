"""REST routes for Stop guards: stops and events of an agent's session, counters and their reset."""

from __future__ import annotations

import re

from flask import Blueprint, Response

from api import requests
from api.auth import current_caller, current_owner, current_visitor
from api.folder import folder_of_command
from api.requests import NoQuery
from api.responses import answer
from app.engine import Engine
from app.errors import InvalidDocument
from app.operations.guards.program import Guarded
from leadhand.models.guards import AgentEvent, AgentSession, StopReport
from leadhand.models.patterns import AGENT_SESSION, form_of


class GuardsQuery(requests.Query):
    """Which guards to list."""

    #: Only the guards of this session of an agent.
    agent_session: AgentSession | None = None


class ResetBody(requests.Body):
    """Which guards to reset."""

    #: Those of this session of an agent; null: all.
    agent_session: AgentSession | None = None


class Guards:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_all(self) -> Response:
        """GET /v1/guards: list the guards that have not ended, with their counters."""
        asked = requests.query(GuardsQuery)
        caller = current_caller()
        inside = None if caller is None else caller.session
        return answer(self._engine.guard_list.listed(asked.agent_session, inside=inside))

    def stop(self, agent: str) -> Response:
        """POST /v1/guards/AGENT_SESSION/stops: decide whether an agent may stop."""
        requests.query(NoQuery)
        return answer(self._engine.guards.stop(_guarded(agent), requests.body(StopReport)))

    def event(self, agent: str) -> Response:
        """POST /v1/guards/AGENT_SESSION/events: record a prompt, idle or end event."""
        requests.query(NoQuery)
        self._engine.guards.note(_guarded(agent), requests.body(AgentEvent))
        return Response(status=204)

    def reset(self) -> Response:
        """POST /v1/guards/reset: set the counters of one agent's Stop guards, or of all, to 0."""
        requests.query(NoQuery)
        asked = requests.body(ResetBody)
        return answer(self._engine.guards.reset(asked.agent_session, by=current_visitor()))


def _guarded(agent: str) -> Guarded:
    """The agent of a request: a body has guards of its own. Raises InvalidDocument."""
    if not re.fullmatch(AGENT_SESSION, agent):
        raise InvalidDocument("agent", agent[:200], f"give {form_of(AGENT_SESSION)}")
    caller = current_caller()
    inside = None if caller is None else caller.session
    return Guarded(agent, inside, current_owner(), folder_of_command())


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of Stop guards."""
    guards = Guards(engine)
    routes = Blueprint("guards", __name__, url_prefix="/v1/guards")
    routes.add_url_rule("", "listed", guards.list_all)
    routes.add_url_rule("/reset", "reset", guards.reset, methods=["POST"])
    routes.add_url_rule("/<agent>/stops", "stop", guards.stop, methods=["POST"])
    routes.add_url_rule("/<agent>/events", "event", guards.event, methods=["POST"])
    return routes
