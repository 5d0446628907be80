"""The calls about Stop guards (pure)."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from leadhand.client.calls import Call
from leadhand.errors import local_error
from leadhand.models.guards import AgentEvent, StopReport
from leadhand.models.patterns import AGENT_SESSION, form_of
from leadhand.models.problems import Kind


def guard_list(agent_session: str | None) -> Call:
    """Builds the request that lists the open Stop guards of one agent session, or of all."""
    params = {} if agent_session is None else {"agent_session": _checked(agent_session)}
    return Call("GET", "/v1/guards", params=params)


def stop(agent_session: str, report: StopReport) -> Call:
    """Builds the request that asks whether an agent may stop; a repeated one counts once."""
    content = report.model_dump_json(exclude_unset=True).encode()
    return Call("POST", _path(agent_session, "stops"), content=content)


def event(agent_session: str, what: AgentEvent) -> Call:
    """Builds the request that records an event of an agent; a repeated one changes nothing."""
    content = what.model_dump_json(exclude_unset=True).encode()
    return Call("POST", _path(agent_session, "events"), content=content)


def reset(agent_session: str | None) -> Call:
    """Builds the request that resets the counters of Stop guards, of one agent session or all."""
    body = {} if agent_session is None else {"agent_session": _checked(agent_session)}
    return Call("POST", "/v1/guards/reset", content=json.dumps(body).encode())


def _path(agent_session: str, noun: str) -> str:
    return f"/v1/guards/{quote(_checked(agent_session), safe='')}/{noun}"


def _checked(agent_session: str) -> str:
    """The id of an agent's session. Raises RequestInvalid."""
    if not re.fullmatch(AGENT_SESSION, agent_session):
        what = f"agent_session is {agent_session[:80]!r}"
        hint = f"give {form_of(AGENT_SESSION)}"
        raise local_error(Kind.INVALID, what, hint=hint, field="agent_session")
    return agent_session
