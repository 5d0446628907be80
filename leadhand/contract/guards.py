"""The operations on Stop guards: stops and events of an agent's session, counters, their reset."""

from __future__ import annotations

from leadhand.contract.calls import Ask, Noun, Op
from leadhand.contract.operation import GONE, Body, BodyRight, Operation, Query, Scope, replies
from leadhand.contract.requests import invalid_form, reads, request, succeeds
from leadhand.models.guards import AgentEvent, AgentSession, StopReport
from leadhand.models.patterns import AGENT_SESSION
from leadhand.models.views.shared import GuardReset, GuardsView, StopView

_ALL = "/v1/guards"


class GuardsQuery(Query):
    """Which guards to list."""

    #: Only the guards of this session of an agent.
    agent_session: AgentSession | None = None


LIST = Operation[GuardsQuery](
    name="guards.listed", method="GET", path=_ALL,
    summary="List the Stop guards that have not ended",
    responses=(replies(GuardsView, "The guards with their counters."),),
    scope=Scope.READ,
    body_right=BodyRight("read", "any"),  # those of its own session
    query=GuardsQuery,
)  # fmt: skip


STOP = Operation[StopReport](
    name="guards.stop", method="POST", path=f"{_ALL}/{{agent}}/stops",
    summary="Report a stop of an agent: may it stop?",
    responses=(replies(StopView, "Run the gates, or the decision."),),
    scope=Scope.SUBMIT,
    body_right=BodyRight("share", "any"), body=StopReport, body_required=True, refuses=(429,),
)  # fmt: skip


EVENT = Operation[AgentEvent](
    name="guards.event", method="POST", path=f"{_ALL}/{{agent}}/events",
    summary="Record an event of an agent that ends a row of blocks",
    responses=(GONE,),
    scope=Scope.SUBMIT,
    body_right=BodyRight("share", "any"), body=AgentEvent, body_required=True,
)  # fmt: skip


class ResetBody(Body):
    """Which guards to reset."""

    #: Those of this session of an agent; null: all.
    agent_session: AgentSession | None = None


RESET = Operation[ResetBody](
    name="guards.reset", method="POST", path=f"{_ALL}/reset",
    summary="Reset the counters of Stop guards",
    responses=(replies(GuardReset, "How many were reset."),),
    scope=Scope.CONTROL,
    body=ResetBody,
)  # fmt: skip


class Guards(Noun):
    """Answers the hooks of agents, and reads and resets the counters of guards."""

    @Op
    def report_stop(self, agent_session: str, report: StopReport) -> Ask[StopView]:
        """Ask whether to run the gates (checks) before an agent stops, or send results to decide.

        The same `stop` again gets the same decision.
        """
        content = report.model_dump_json(exclude_unset=True).encode()
        return reads(StopView, request(STOP, agent_session, content=content))

    @Op
    def report_event(self, agent_session: str, event: AgentEvent) -> Ask[None]:
        """Record a prompt, idle or end event of an agent; it ends its series of blocked stops."""
        content = event.model_dump_json(exclude_unset=True).encode()
        return succeeds(request(EVENT, agent_session, content=content))

    @Op
    def guards(self, agent_session: str | None = None) -> Ask[GuardsView]:
        """List the open Stop guards (checks before an agent stops) and their counters.

        Of one agent session, or of all.
        """
        named = None if agent_session is None else _checked(agent_session)
        return reads(GuardsView, request(LIST, agent_session=named))

    @Op
    def reset_guards(self, agent_session: str | None = None) -> Ask[GuardReset]:
        """Set the failure counters of Stop guards to 0, for one agent session or all."""
        body = {} if agent_session is None else {"agent_session": _checked(agent_session)}
        return reads(GuardReset, request(RESET, body=body))


def _checked(agent_session: str) -> str:
    """The id of an agent's session. Raises RequestInvalid."""
    if (refusal := invalid_form("agent_session", agent_session, AGENT_SESSION)) is not None:
        raise refusal
    return agent_session
