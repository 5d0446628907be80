"""The operations of the asynchronous client on Stop guards."""

from __future__ import annotations

from leadhand.client.async_connection import AsyncConnection
from leadhand.client.calls import Call
from leadhand.client.guards import requests
from leadhand.client.requests import M, parsed
from leadhand.models.guards import AgentEvent, StopReport
from leadhand.models.views import GuardReset, GuardsView, StopView


class AsyncGuardCalls:
    """Answers the hooks of agents, and reads and resets the counters of guards."""

    _connection: AsyncConnection

    async def report_stop(self, agent_session: str, report: StopReport) -> StopView:
        """Ask whether to run the gates (checks) before an agent stops, or send results to decide.

        The same `stop` again gets the same decision.
        """
        return await self._ask_guard(StopView, requests.stop(agent_session, report))

    async def report_event(self, agent_session: str, event: AgentEvent) -> None:
        """Record a prompt, idle or end event of an agent; it ends its series of blocked stops."""
        (await self._connection.transport.send(requests.event(agent_session, event))).checked()

    async def guards(self, agent_session: str | None = None) -> GuardsView:
        """List the open Stop guards (checks before an agent stops) and their counters.

        Of one agent session, or of all.
        """
        return await self._ask_guard(GuardsView, requests.guard_list(agent_session))

    async def reset_guards(self, agent_session: str | None = None) -> GuardReset:
        """Set the failure counters of Stop guards to 0, for one agent session or all."""
        return await self._ask_guard(GuardReset, requests.reset(agent_session))

    async def _ask_guard(self, model: type[M], call: Call) -> M:
        return parsed(model, (await self._connection.transport.send(call)).checked())
