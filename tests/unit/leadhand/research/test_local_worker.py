"""What a local worker does when the API refuses an outcome or is away."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from leadhand.client.client import AsyncClient, Client
from leadhand.errors import ApiAway, RequestInvalid
from leadhand.models.local_work import ClaimWork, SettleWork
from leadhand.models.views.session import SettledView, WorkGrant, WorkView
from leadhand.research import StateManager, Workflow, WorkflowState, WorkflowStep, local_worker
from leadhand.research.executor import WorkflowExecutor, _Run
from leadhand.research.local_worker import LocalWorker
from leadhand.research.tool_calls import Called

GRANT = WorkGrant(
    address="step", step="step", tool="tool", arguments={}, fence=1, nonce="n" * 8, attempt=1,
    timeout_s=5, lease_s=60, key="ab12cd34:step",
)  # fmt: skip
AWAY = ApiAway("http://127.0.0.1:1", "refused")
REFUSED = RequestInvalid("value is too long")


class Api:
    """The calls of a worker, for a session of one step; raises the errors given, in turn."""

    def __init__(self, *, claim: list[Exception], settle: list[Exception]) -> None:
        self.errors = {"claim": claim, "settle": settle}
        self.claims: list[ClaimWork] = []
        self.outcomes: list[SettleWork] = []

    async def claim_work(self, _session: str, asked: ClaimWork) -> WorkView:
        self.claims.append(asked)
        self._fail("claim")
        if self.outcomes:
            return WorkView(status="completed")
        if len({one.nonce for one in self.claims}) > 1:
            await asyncio.sleep(0)
            return WorkView(status="active")
        return WorkView(status="active", grant=GRANT)

    async def settle_work(self, _session: str, outcome: SettleWork) -> SettledView:
        self._fail("settle")
        self.outcomes.append(outcome)
        return SettledView(result="settled", status="completed")

    def _fail(self, call: str) -> None:
        if self.errors[call]:
            raise self.errors[call].pop(0)


def run(api: Api, value: Any = 7) -> tuple[list[Called], list[Called]]:
    """The outcomes that were recorded, and those that were not."""
    settled: list[Called] = []
    unrecorded: list[Called] = []

    async def body(_grant: WorkGrant) -> Called:
        return Called(0.0, value=value)

    async def on_settled(_grant: WorkGrant, called: Called, _view: SettledView) -> None:
        settled.append(called)

    async def on_unrecorded(_grant: WorkGrant, called: Called) -> None:
        unrecorded.append(called)

    async def stop() -> None: ...

    async def work() -> None:
        worker = LocalWorker(
            cast("AsyncClient", api), "ab12cd34", beats=cast("Client", None), body=body,
            on_settled=on_settled, on_unrecorded=on_unrecorded, on_interrupted=stop, parallel=2,
            logger=logging.getLogger("leadhand.research"),
        )  # fmt: skip
        await worker.run(takes_over=False)

    try:
        asyncio.run(work())
    except ApiAway:
        settled.clear()
    return settled, unrecorded


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_worker, "_RETRY_S", 0.0)


def test_outcome_that_is_refused_is_a_failure_for_good() -> None:
    api = Api(claim=[], settle=[REFUSED])
    settled, _ = run(api)
    assert [(one.outcome, one.retryable) for one in api.outcomes] == [("failed", False)]
    assert "value is too long" in api.outcomes[0].error
    assert settled[0].error == api.outcomes[0].error


def test_value_that_is_no_json_is_a_failure_for_good() -> None:
    api = Api(claim=[], settle=[])
    run(api, object())
    assert [(one.outcome, one.retryable) for one in api.outcomes] == [("failed", False)]


def test_calls_are_repeated_while_the_api_is_away() -> None:
    api = Api(claim=[AWAY, AWAY], settle=[AWAY, AWAY, AWAY])
    settled, unrecorded = run(api)
    assert [one.value for one in settled] == [7]
    assert [one.value for one in api.outcomes] == [7]
    assert unrecorded == []
    assert len({one.nonce for one in api.claims[:3]}) == 1


def test_result_is_kept_once_the_api_is_away_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_worker, "LOST_AFTER_S", 0.0)
    settled, unrecorded = run(Api(claim=[], settle=[AWAY, AWAY]))
    assert settled == []
    assert [one.value for one in unrecorded] == [7]


def test_result_that_is_not_recorded_is_not_worked_out_again(tmp_path: Path) -> None:
    calls: list[int] = []
    manager = StateManager(tmp_path)
    executor = WorkflowExecutor({"tool": lambda: calls.append(1)}, manager, logging.getLogger())
    workflow = Workflow("w", "d", [WorkflowStep("step", "tool", {})])
    execution = _Run(executor, workflow, WorkflowState("one", workflow))
    late = SettledView(result="superseded", status="active")
    asyncio.run(execution._settled(GRANT, Called(0.0, value=7), late))
    saved = asyncio.run(manager.load_state("one"))
    assert saved is not None
    assert (saved.completed_steps, saved.step_results) == (["step"], {"step": 7})
    resumed = _Run(executor, workflow, saved)
    assert asyncio.run(resumed._call(GRANT)) == Called(0.0, value=7)
    assert calls == []
