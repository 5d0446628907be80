"""Stops of an agent for the tests of guards, in few words."""

from __future__ import annotations

from itertools import count
from typing import Any

from app import guards
from app.guards import Guarded
from leadhand.models.guards import GateResult, StopReport
from leadhand.models.views.result import LedgerEntry
from leadhand.models.views.shared import GuardView, StopDecision, StopView
from tests.engine.world import World

AGENT = Guarded("agent-1")
_numbers = count(1)


def gate(name: str = "build", outcome: str = "failed", **more: Any) -> GateResult:
    return GateResult.model_validate({"name": name, "outcome": outcome, "output": "boom"} | more)


def report(*gates: GateResult, stop: str | None = None, **more: Any) -> StopReport:
    fields = {"stop": stop or f"stop-{next(_numbers)}", "prompt_id": "p1", "gates": gates}
    return StopReport.model_validate(fields | more)


def question(stop: str | None = None, **more: Any) -> StopReport:
    """The first call of a hook: may the gates run?"""
    return report(stop=stop, gates=None, **more)


def stop(world: World, *gates: GateResult, guarded: Guarded = AGENT, **more: Any) -> StopDecision:
    """One stop whose hook brings the results of its gates."""
    view = guards.decide_stop(world.engine, guarded, report(*gates, **more))
    assert view.state == "decided", view
    assert view.decision is not None
    return view.decision


def begin(world: World, name: str, *, guarded: Guarded = AGENT, **more: Any) -> StopView:
    return guards.decide_stop(world.engine, guarded, question(name, **more))


def guard_of(world: World, agent_session: str = AGENT.agent_session) -> GuardView:
    items = guards.list_guards(world.engine, agent_session).items
    assert len(items) == 1, items
    return items[0]


def ledger_of(world: World) -> list[LedgerEntry]:
    return world.engine.queries.ledger(guard_of(world).guard, limit=100, cursor=None).items
