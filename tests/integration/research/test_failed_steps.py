"""What a step that failed is for those that refer to it."""

from __future__ import annotations

from leadhand.research import StepStatus
from tests.integration.research.conftest import Research, flow, run, step
from tests.integration.research.test_acceptance_criteria import broken


def test_ac_006_result_of_a_failed_step_is_its_error(research: Research) -> None:
    given: list[object] = []

    async def keep(value: object, title: object) -> dict[str, object]:
        given.extend([value, title])
        return {"error": "this is what it found, and no failure"}

    keeps = step("keep", arguments={"value": "${broken}", "title": "${broken.title}"})
    agent = research.agent(broken=broken, keep=keep)
    result = run(agent.execute_workflow(flow(step("broken", critical=False), keeps)))
    assert result.success
    assert given == [{"error": "the server is down"}, None]
    assert result.statuses["keep"] is StepStatus.COMPLETED
    assert result.errors == ["Step 'broken' failed: the server is down"]
