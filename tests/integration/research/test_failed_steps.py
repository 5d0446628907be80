"""What a step that failed is for those that refer to it."""

from __future__ import annotations

from leadhand.research import StepStatus
from tests.integration.research.conftest import Research, flow, run, step
from tests.integration.research.papers import search
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


def test_step_without_a_value_for_a_strict_reference_has_failed_and_says_why(
    research: Research,
) -> None:
    calls: list[str] = []

    async def find() -> dict[str, int]:
        calls.append("find")
        return {"pages": 3}

    async def read(urls: object) -> object:
        calls.append("read")
        return urls

    agent = research.agent({"strict_references": True}, find=find, read=read)
    reads = step("read", arguments={"urls": "${find.urls}"})
    last = step("last", "read", arguments={"urls": "${read}"})
    result = run(agent.execute_workflow(flow(step("find"), reads, last), "strict"))
    assert result.message == "Critical step failed: read"
    assert result.errors == [
        "Step 'read' failed: ${find.urls} has no value: it has no 'urls'; it has: pages"
    ]
    assert {name: status.value for name, status in result.statuses.items()} == {
        "find": "completed", "read": "failed", "last": "pending",
    }  # fmt: skip
    assert result.suggestions[:2] == [
        "step 'read' failed before tool 'read' was called: correct ${find.urls} in its arguments,"
        " or give it a default, such as ${find.urls ?? null}",
        "then run it with await agent.execute_workflow(workflow, 'strict'):"
        " the results of 1 completed step are kept",
    ]
    reads.arguments = {"urls": "${find.urls ?? null}"}
    assert run(agent.execute_workflow(flow(step("find"), reads, last), "strict")).success
    assert calls == ["find", "read", "read"]


def test_time_limit_names_a_step_that_waits_for_a_retry(research: Research) -> None:
    config = {"timeout_seconds": 1.0, "max_retries": 3, "retry_delay": 60.0}
    agent = research.agent(config, broken=broken, search=search)
    steps = [step("search", arguments={"query": "q"}), step("broken", depends_on=["search"])]
    result = run(agent.execute_workflow(flow(*steps)))
    assert result.errors == [
        "Workflow 'papers' took longer than 1 s: step 'broken' waited for its next attempt;"
        " the last failed: the server is down"
    ]
    assert result.statuses["search"] is StepStatus.COMPLETED
    assert result.statuses["broken"] is StepStatus.FAILED
    assert "raise timeout_seconds" in result.suggestions[0]
