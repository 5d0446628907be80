"""Serves the operations on Stop guards: stops and events of an agent's session, and counters."""

from __future__ import annotations

import re

from api.auth import current_caller, current_owner, current_visitor
from api.folder import folder_of_command
from api.serving import Call, serves
from app import guards as app_guards
from app.engine import Engine
from app.errors import InvalidDocument
from app.guards import Guarded
from leadhand.contract import guards
from leadhand.models.guards import AgentEvent, StopReport
from leadhand.models.patterns import AGENT_SESSION, form_of
from leadhand.models.views.shared import GuardReset, GuardsView, StopView


@serves(guards.LIST)
def list_all(engine: Engine, _: Call, asked: guards.GuardsQuery) -> GuardsView:
    """Lists the guards that have not ended, with their counters."""
    return app_guards.list_guards(engine, asked.agent_session, inside=_inside())


@serves(guards.STOP)
def stop(engine: Engine, call: Call, asked: StopReport) -> StopView:
    """Decides whether an agent may stop."""
    return app_guards.decide_stop(engine, _guarded(call.path["agent"]), asked)


@serves(guards.EVENT)
def record_event(engine: Engine, call: Call, asked: AgentEvent) -> None:
    """Records a prompt, idle or end event."""
    app_guards.record_event(engine, _guarded(call.path["agent"]), asked)


@serves(guards.RESET)
def reset(engine: Engine, _: Call, asked: guards.ResetBody) -> GuardReset:
    """Sets the counters of one agent's Stop guards, or of all, to 0."""
    return app_guards.reset_all(engine, asked.agent_session, by=current_visitor())


def _guarded(agent: str) -> Guarded:
    """The agent of a request: a body has guards of its own. Raises InvalidDocument."""
    if not re.fullmatch(AGENT_SESSION, agent):
        raise InvalidDocument("agent", agent[:200], f"give {form_of(AGENT_SESSION)}")
    return Guarded(agent, _inside(), current_owner(), folder_of_command())


def _inside() -> str | None:
    caller = current_caller()
    return None if caller is None else caller.session
