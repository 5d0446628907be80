"""AC-005 of the seed: progress is reported after each step, in the order of the ends."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from leadhand.research import StateManager, StepProgress, StepStatus, WorkflowState
from tests.integration.research.conftest import Research, flow, run
from tests.integration.research.papers import PAPERS, fetch, report, search


def test_ac_005_progress_is_reported_after_each_step(
    research: Research, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[StepProgress] = []
    agent = research.agent(
        search=search, fetch=fetch, report=report, more={"on_progress": seen.append}
    )
    with caplog.at_level(logging.INFO, "leadhand.research"):
        run(agent.execute_workflow(flow(*PAPERS)))
    assert {one.step for one in seen} == {"search", "first", "second", "report"}
    assert {one.status for one in seen} == {StepStatus.COMPLETED}
    assert [one.ended for one in seen] == [1, 2, 3, 4]
    assert all(one.elapsed_seconds >= 0 and one.total == 4 for one in seen)
    assert "Executing step 1/4: search" in caplog.text
    assert "Step 'search' completed in 0.0" in caplog.text


class OvertakenSaves(StateManager):
    """Saves the state with two ended steps after that with three, if both are saved at once."""

    saved: asyncio.Event

    async def save_state(self, state: WorkflowState) -> None:
        ended = len(state.ended_steps)
        if ended == 1:
            self.saved = asyncio.Event()
        if ended == 2:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.saved.wait(), timeout=0.5)
        await super().save_state(state)
        if ended == 3:
            self.saved.set()


def test_ac_005_progress_is_reported_in_the_order_of_the_ends(research: Research) -> None:
    seen: list[int] = []
    states = OvertakenSaves(str(research.folder))
    agent = research.agent(
        search=search, fetch=fetch, report=report,
        more={"on_progress": lambda one: seen.append(one.ended), "state_manager": states},
    )  # fmt: skip
    run(agent.execute_workflow(flow(*PAPERS)))
    assert seen == [1, 2, 3, 4]
