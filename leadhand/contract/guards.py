"""The operations on Stop guards: stops and events of an agent's session, counters, their reset."""

from __future__ import annotations

from leadhand.contract.bodies import Body, Query
from leadhand.contract.operation import GONE, BodyRight, Operation, Scope, replies
from leadhand.models.guards import AgentEvent, AgentSession, StopReport
from leadhand.models.views.guards import GuardReset, GuardsView, StopView

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
