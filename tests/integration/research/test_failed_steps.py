"""What a step that failed is for those that refer to it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.client.client import Client
from leadhand.research import StepStatus
from tests.http_world import TOKEN
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


def test_step_at_work_when_a_critical_one_fails_is_interrupted(research: Research) -> None:
    begun = asyncio.Event()

    async def reads() -> None:
        begun.set()
        await asyncio.sleep(60)

    async def fails() -> None:
        await begun.wait()
        raise ValueError("no")

    agent = research.agent(reads=reads, fails=fails)
    result = run(agent.execute_workflow(flow(step("reads"), step("fails")), "cut"))
    assert result.message == "Critical step failed: fails"
    assert result.statuses["reads"] is StepStatus.INTERRUPTED
    assert result.errors == [
        "Step 'fails' failed: no",
        "Step 'reads' was interrupted: it was running (attempt 1)",
    ]
    assert "interrupted at work: 'reads'; a resume calls the tools again" in str(result.suggestions)


def test_result_above_2_mib_is_an_artifact_and_whole_for_other_steps_and_a_resume(
    research: Research,
) -> None:
    text = "é" * (3 * 1024 * 1024)
    given: list[object] = []
    calls: list[int] = []

    def long() -> list[str]:
        calls.append(1)
        return [text]

    def takes(value: list[str]) -> int:
        given.append(value)
        return len(value[0])

    steps = [step("long"), step("takes", arguments={"value": "${long}"})]
    agent = research.agent(long=long, takes=takes)
    result = run(agent.execute_workflow(flow(*steps), "big"))
    assert (result.errors, result.results["takes"]) == ([], len(text))
    assert given == [[text]]
    # A process that lost its state takes the result over from Leadhand.
    failing = research.agent(long=long, takes=broken)
    assert not run(failing.execute_workflow(flow(*steps), "later")).success
    path = research.folder / "later.json"
    stored = json.loads(path.read_text())
    stored.update(completed_steps=[], step_results={})
    path.write_text(json.dumps(stored))
    resumed = run(research.agent(long=long, takes=takes).resume_workflow("later"))
    assert resumed.results["long"] == [text]
    assert len(calls) == 2


def test_values_that_json_would_change_are_recorded_as_they_are(research: Research) -> None:
    value = {"big": 2**63 + 1, "long": 10**400, "small": 5e-324, "sum": 0.1 + 0.2, "none": [None]}
    given: list[object] = []

    def takes(value: object) -> None:
        given.append(value)

    agent = research.agent(gives=lambda: value, takes=takes)
    steps = [step("gives"), step("takes", arguments={"value": "${gives}"})]
    result = run(agent.execute_workflow(flow(*steps), "exact"))
    assert result.results["gives"] == value
    assert given == [value]


def test_tool_that_is_cancelled_from_within_is_called_once(research: Research) -> None:
    calls: list[int] = []

    async def gives_up() -> None:
        calls.append(1)
        raise asyncio.CancelledError

    result = run(research.agent(gives_up=gives_up).execute_workflow(flow(step("gives_up"))))
    assert result.errors == [
        "Step 'gives_up' failed: CancelledError: the tool, or a task that it awaited, was cancelled"
        " from within"
    ]
    assert len(calls) == 1


def test_warnings_go_to_the_logger_that_was_given(
    research: Research, caplog: pytest.LogCaptureFixture
) -> None:
    own = logging.getLogger("of the caller")
    (research.folder).mkdir()
    (research.folder / "logs").write_text("no folder")
    (research.folder / "damaged.json").write_text("{")

    async def one() -> int:
        return 1

    agent = research.agent(more={"logger": own}, one=one)
    steps = [step("one"), step("two", "one", arguments={})]
    assert run(agent.execute_workflow(flow(*steps), "warned")).success
    assert run(agent.list_sessions()) == []
    warned = [record.name for record in caplog.records if record.levelno == logging.WARNING]
    assert set(warned) == {"of the caller"}


@pytest.mark.parametrize("runner", ["asyncio.run", "asyncio.new_event_loop().run_until_complete"])
def test_interrupt_by_the_user_stops_the_session_and_is_raised_again(
    research: Research, runner: str
) -> None:
    program = f"""
import asyncio, sys, time
from leadhand.research import AgentConfig, ResearchAgent, Workflow, WorkflowStep

async def blocks():
    print("begun", flush=True)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        time.sleep(0.05)
        if {runner == "asyncio.run"}:
            await asyncio.sleep(0)

agent = ResearchAgent(
    {{"blocks": blocks}}, AgentConfig(state_dir=sys.argv[1]), url=sys.argv[2], token=sys.argv[3])
workflow = Workflow("w", "d", [WorkflowStep("blocks", "blocks", {{}})])
try:
    {runner}(agent.execute_workflow(workflow, "mine"))
except KeyboardInterrupt:
    print("interrupted")
"""
    arguments = [str(research.folder), research.api.url, TOKEN]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    os.kill(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert said == "interrupted\n"
    stored = json.loads(Path(research.folder, "mine.json").read_text())
    assert stored["status"] == "stopped"
    with Client(research.api.url, TOKEN) as client:
        assert client.session(stored["leadhand_session"]).status in ("stopping", "stopped")
