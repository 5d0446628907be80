"""The operations on Stop guards."""

from __future__ import annotations

from leadhand.client.operation import Ask, Op, Operations
from leadhand.client.paths import invalid_form
from leadhand.client.requests import reads, request, succeeds
from leadhand.contract import guards
from leadhand.models.guards import AgentEvent, StopReport
from leadhand.models.patterns import AGENT_SESSION
from leadhand.models.views.guards import GuardReset, GuardsView, StopView


class Guards(Operations):
    """Answers the hooks of agents, and reads and resets the counters of guards."""

    @Op
    def report_stop(self, agent_session: str, report: StopReport) -> Ask[StopView]:
        """Ask whether to run the gates (checks) before an agent stops, or send results to decide.

        The same `stop` again gets the same decision.
        """
        content = report.model_dump_json(exclude_unset=True).encode()
        return reads(StopView, request(guards.STOP, agent_session, content=content))

    @Op
    def report_event(self, agent_session: str, event: AgentEvent) -> Ask[None]:
        """Record a prompt, idle or end event of an agent; it ends its series of blocked stops."""
        content = event.model_dump_json(exclude_unset=True).encode()
        return succeeds(request(guards.EVENT, agent_session, content=content))

    @Op
    def guards(self, agent_session: str | None = None) -> Ask[GuardsView]:
        """List the open Stop guards (checks before an agent stops) and their counters.

        Of one agent session, or of all.
        """
        named = None if agent_session is None else _checked(agent_session)
        return reads(GuardsView, request(guards.LIST, agent_session=named))

    @Op
    def reset_guards(self, agent_session: str | None = None) -> Ask[GuardReset]:
        """Set the failure counters of Stop guards to 0, for one agent session or all."""
        body = {} if agent_session is None else {"agent_session": _checked(agent_session)}
        return reads(GuardReset, request(guards.RESET, body=body))


def _checked(agent_session: str) -> str:
    """The id of an agent's session. Raises RequestInvalid."""
    if (refusal := invalid_form("agent_session", agent_session, AGENT_SESSION)) is not None:
        raise refusal
    return agent_session
