"""The operations on Stop guards."""

from __future__ import annotations

import re
from urllib.parse import quote

from leadhand.client.calls import Call
from leadhand.client.operation import Ask, Op, Operations
from leadhand.client.requests import get, post, reads, succeeds
from leadhand.errors import local_error
from leadhand.models.guards import AgentEvent, StopReport
from leadhand.models.patterns import AGENT_SESSION, form_of
from leadhand.models.problems import Kind
from leadhand.models.views import GuardReset, GuardsView, StopView


class Guards(Operations):
    """Answers the hooks of agents, and reads and resets the counters of guards."""

    @Op
    def report_stop(self, agent_session: str, report: StopReport) -> Ask[StopView]:
        """Ask whether to run the gates (checks) before an agent stops, or send results to decide.

        The same `stop` again gets the same decision.
        """
        content = report.model_dump_json(exclude_unset=True).encode()
        return reads(StopView, Call("POST", _path(agent_session, "stops"), content=content))

    @Op
    def report_event(self, agent_session: str, event: AgentEvent) -> Ask[None]:
        """Record a prompt, idle or end event of an agent; it ends its series of blocked stops."""
        content = event.model_dump_json(exclude_unset=True).encode()
        return succeeds(Call("POST", _path(agent_session, "events"), content=content))

    @Op
    def guards(self, agent_session: str | None = None) -> Ask[GuardsView]:
        """List the open Stop guards (checks before an agent stops) and their counters.

        Of one agent session, or of all.
        """
        named = None if agent_session is None else _checked(agent_session)
        return reads(GuardsView, get("/v1/guards", agent_session=named))

    @Op
    def reset_guards(self, agent_session: str | None = None) -> Ask[GuardReset]:
        """Set the failure counters of Stop guards to 0, for one agent session or all."""
        body = {} if agent_session is None else {"agent_session": _checked(agent_session)}
        return reads(GuardReset, post("/v1/guards/reset", body))


def _path(agent_session: str, noun: str) -> str:
    return f"/v1/guards/{quote(_checked(agent_session), safe='')}/{noun}"


def _checked(agent_session: str) -> str:
    """The id of an agent's session. Raises RequestInvalid."""
    if not re.fullmatch(AGENT_SESSION, agent_session):
        what = f"agent_session is {agent_session[:80]!r}"
        hint = f"give {form_of(AGENT_SESSION)}"
        raise local_error(Kind.INVALID, what, hint=hint, field="agent_session")
    return agent_session
