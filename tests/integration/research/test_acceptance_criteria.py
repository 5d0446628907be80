"""The acceptance criteria of the seed, AC-001 to AC-006, written against `leadhand.research`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from leadhand.research import (
    CircuitBreaker,
    CostApproval,
    StepStatus,
    ToolNotFoundError,
    WorkflowExecutionError,
    WorkflowState,
    WorkflowValidationError,
)
from tests.integration.research.conftest import Research, flow, run, step
from tests.integration.research.papers import PAPERS, fetch, report, search


async def broken(**_: Any) -> None:
    raise ValueError("the server is down")


def test_ac_001_a_chain_of_tools_runs_and_keeps_its_results(research: Research) -> None:
    result = run(
        research.agent(search=search, fetch=fetch, report=report).execute_workflow(flow(*PAPERS))
    )
    assert result.success
    assert result.message == "Workflow 'papers' completed successfully"
    assert result.results["report"] == "2: text of agents-1; text of agents-2"
    assert set(result.results) == {"search", "first", "second", "report"}
    assert set(result.statuses.values()) == {StepStatus.COMPLETED}


def test_ac_001_a_command_in_words_becomes_steps(research: Research) -> None:
    async def summarise(text: Any) -> str:
        return f"summary of {text['found']}"

    agent = research.agent(search=search, summarise=summarise)
    workflow = run(agent.decompose("search for agents, then summarise it"))
    assert [(one.name, one.arguments) for one in workflow.steps] == [
        ("search", {"query": "agents"}),
        ("summarise", {"text": '${steps["search"]}'}),
    ]
    result = run(agent.run("search for agents, then summarise it"))
    assert result.results["summarise"] == "summary of 2"


def test_ac_002_tool_failure_is_captured_and_calls_are_logged(research: Research) -> None:
    agent = research.agent(broken=broken, search=search)
    result = run(
        agent.execute_workflow(
            flow(step("broken", arguments={"api_key": "k", "n": 1}), step("later", "search",
                 arguments={"query": "x"}, depends_on=["broken"])),
            "the-log",
        )
    )  # fmt: skip
    assert not result.success
    lines = [
        json.loads(text) for text in (research.folder / "logs/the-log.log").read_text().splitlines()
    ]
    assert [one["event"] for one in lines] == ["begin", "call", "decision", "end"]
    assert (lines[2]["step"], lines[2]["decision"]) == ("broken", "ends the workflow")
    assert (lines[3]["status"], lines[3]["message"]) == (
        "failed",
        "Critical step failed: broken",
    )
    line = lines[1]
    assert line["error"] == "the server is down"
    assert line["arguments"] == {"api_key": "[redacted]", "n": 1}
    assert {"time", "step", "tool", "elapsed"} <= set(line)


def test_ac_003_state_is_kept_after_a_failure_and_removed_after_success(
    research: Research,
) -> None:
    calls: list[str] = []

    async def once(query: str) -> str:
        calls.append(query)
        return query

    works = False

    async def flaky() -> str:
        if not works:
            raise ValueError("not yet")
        return "done"

    agent = research.agent(once=once, flaky=flaky)
    workflow = flow(step("once", arguments={"query": "q"}), step("flaky", depends_on=["once"]))
    first = run(agent.execute_workflow(workflow, "mine"))
    assert not first.success
    stored = json.loads((research.folder / "mine.json").read_text())
    assert (stored["status"], stored["current_step"], stored["completed_steps"]) == (
        "failed", 1, ["once"],
    )  # fmt: skip
    assert stored["step_results"] == {"once": "q"}
    assert stored["errors"] == ["Step 'flaky' failed: not yet"]
    (listed,) = run(agent.list_sessions())
    assert (listed["session_id"], listed["status"], listed["workflow_name"]) == (
        "mine", "failed", "papers",
    )  # fmt: skip
    works = True
    # Another agent, as in another process: only the state says what is to be done.
    other = research.agent(once=once, flaky=flaky)
    result = run(other.resume_workflow("mine"))
    assert result.success
    assert result.results == {"once": "q", "flaky": "done"}
    assert calls == ["q"]
    assert research.states == []
    assert run(agent.list_sessions()) == []


def test_ac_003_unknown_session_cannot_be_resumed(research: Research) -> None:
    with pytest.raises(ValueError, match="No state found for session nothing"):
        run(research.agent().resume_workflow("nothing"))


def test_ac_004_independent_steps_run_at_the_same_time(research: Research) -> None:
    meeting = asyncio.Barrier(3)  # each waits for the two others

    async def meet(name: str) -> str:
        await meeting.wait()
        return name

    steps = [step(name, "meet", arguments={"name": name}, timeout=20) for name in "abc"]
    result = run(research.agent(meet=meet).execute_workflow(flow(*steps)))
    assert result.success, result


def test_ac_004_dependency_order_is_respected(research: Research) -> None:
    order: list[str] = []

    async def note(name: str, after: Any = None) -> str:
        order.append(name)
        return name

    steps = [
        step("last", "note", arguments={"name": "last", "after": "${middle}"}),
        step("middle", "note", arguments={"name": "middle"}, depends_on=["first"]),
        step("first", "note", arguments={"name": "first"}),
    ]
    assert run(research.agent(note=note).execute_workflow(flow(*steps))).success
    assert order == ["first", "middle", "last"]


def test_ac_004_with_one_at_a_time_independent_steps_keep_their_order(research: Research) -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    steps = [step(name, "note", arguments={"name": name}) for name in "dbca"]
    agent = research.agent({"max_parallel": 1}, note=note)
    assert run(agent.execute_workflow(flow(*steps))).success
    assert order == ["d", "b", "c", "a"]


def test_ac_006_non_critical_failure_lets_the_workflow_go_on(research: Research) -> None:
    steps = [
        step("broken", critical=False),
        step("search", arguments={"query": "${broken.error}"}),
        step("lenient", "search", arguments={"query": "q ${broken.text}"}),
    ]
    result = run(research.agent(broken=broken, search=search).execute_workflow(flow(*steps)))
    assert result.success
    assert result.results["broken"] == {"error": "the server is down"}
    assert result.results["search"]["urls"][0] == "the server is down-1"
    assert result.results["lenient"]["urls"][0] == "q -1"
    assert result.errors == ["Step 'broken' failed: the server is down"]
    assert result.statuses["broken"] is StepStatus.FAILED


def test_ac_006_critical_failure_halts_with_partial_results_and_suggestions(
    research: Research,
) -> None:
    calls: list[str] = []

    async def later() -> None:
        calls.append("later")

    steps = [
        step("search", arguments={"query": "q"}),
        step("broken", depends_on=["search"]),
        step("later", depends_on=["broken"]),
    ]
    agent = research.agent(search=search, broken=broken, later=later)
    result = run(agent.execute_workflow(flow(*steps), "halted"))
    assert not result.success
    assert result.message == "Critical step failed: broken"
    assert list(result.results) == ["search"]
    assert result.errors == ["Step 'broken' failed: the server is down"]
    assert calls == []
    assert any("agent.resume_workflow('halted')" in one for one in result.suggestions)
    assert any("leadhand explain " in one for one in result.suggestions)


def test_success_false_fails_the_step(research: Research) -> None:
    async def sorry() -> dict[str, Any]:
        return {"success": False, "error": "no paper found"}

    result = run(research.agent(sorry=sorry).execute_workflow(flow(step("sorry"))))
    assert result.errors == ["Step 'sorry' failed: no paper found"]


def test_timeout_of_a_step_is_enforced(research: Research) -> None:
    async def endless() -> None:
        await asyncio.Event().wait()

    result = run(
        research.agent(endless=endless).execute_workflow(flow(step("endless", timeout=0.2)))
    )
    assert result.errors == ["Step 'endless' failed: it took longer than 0.2 s"]
    assert any("raise its timeout" in one for one in result.suggestions)


def test_retries_of_a_step_win_over_those_of_the_configuration(research: Research) -> None:
    calls: list[str] = []

    async def flaky(name: str) -> str:
        calls.append(name)
        if calls.count(name) < 2:
            raise ConnectionError("try again")
        return name

    agent = research.agent({"max_retries": 1, "retry_delay": 0.01}, flaky=flaky)
    assert run(agent.execute_workflow(flow(step("a", "flaky", arguments={"name": "a"})))).success
    never = step("b", "flaky", arguments={"name": "b"}, retry_count=0)
    assert not run(agent.execute_workflow(flow(never))).success
    assert calls == ["a", "a", "b"]


def test_missing_tool_is_found_before_anything_runs(research: Research) -> None:
    calls: list[int] = []

    async def first() -> None:
        calls.append(1)

    workflow = flow(step("first"), step("second", "no such tool"))
    with pytest.raises(WorkflowExecutionError, match="Tool 'no such tool' not found") as raised:
        run(research.agent(first=first).execute_workflow(workflow))
    assert isinstance(raised.value.__cause__, ToolNotFoundError)
    assert isinstance(raised.value, ValueError)
    assert calls == []
    assert research.states == []


def test_circle_is_found_before_anything_runs(research: Research) -> None:
    workflow = flow(step("a", arguments={"x": "${b}"}), step("b", "a", arguments={"x": "${a}"}))
    with pytest.raises(WorkflowValidationError, match="circle: a, b"):
        run(research.agent(a=search).execute_workflow(workflow))


def test_name_of_a_step_is_its_result_and_any_other_is_refused_before_anything_runs(
    research: Research,
) -> None:
    calls: list[dict[str, Any]] = []

    async def given(**arguments: Any) -> dict[str, Any]:
        calls.append(arguments)
        return arguments

    first = step("first of all", "given", arguments={"x": {"y": 1}, "home": "${HOME}/x"})
    then = step("given", arguments={"x": "${first of all.x}", "none": "${first of all.z}"})
    agent = research.agent(given=given)
    result = run(agent.execute_workflow(flow(first, then)))
    assert result.results["given"] == {"x": {"y": 1}, "none": None}
    assert result.results["first of all"]["home"] == "${HOME}/x"
    del calls[:]
    then.arguments["none"] = "${nothing.at.all}"
    for one in (agent, research.agent({"strict_references": True}, given=given)):
        with pytest.raises(WorkflowValidationError, match="there is no step 'nothing'"):
            run(one.execute_workflow(flow(first, then)))
    assert not calls


def test_open_circuit_breaker_refuses_a_call(research: Research) -> None:
    calls: list[int] = []

    async def broken() -> None:
        calls.append(1)
        raise ValueError("down")

    steps = [
        step(name, "broken", critical=False, depends_on=before)
        for name, before in (("a", []), ("b", ["a"]), ("c", ["b"]))
    ]
    agent = research.agent(broken=broken, more={"breaker": lambda: CircuitBreaker(threshold=2)})
    result = run(agent.execute_workflow(flow(*steps)))
    assert len(calls) == 2
    assert "Circuit breaker is open" in result.results["c"]["error"]


def test_time_limit_of_the_workflow_ends_it_and_a_resume_gets_more(research: Research) -> None:
    quick = False

    async def slow() -> str:
        if not quick:
            await asyncio.Event().wait()
        return "done"

    agent = research.agent({"timeout_seconds": 1.0}, slow=slow)
    result = run(agent.execute_workflow(flow(step("slow")), "late"))
    assert result.message == "Workflow 'papers' took longer than 1 s"
    assert result.errors == [f"{result.message}: step 'slow' was running (attempt 1)"]
    assert result.statuses == {"slow": StepStatus.FAILED}
    quick = True
    assert run(agent.resume_workflow("late")).success


def test_value_that_json_does_not_have_fails_its_step(research: Research) -> None:
    async def odd() -> Any:
        return {"found": [1, float("nan")]}

    result = run(research.agent(odd=odd).execute_workflow(flow(step("odd"))))
    why = "its result cannot be recorded: result.found[1]: JSON has no nan"
    assert result.errors == [f"Step 'odd' failed: {why}"]


def test_same_id_starts_anew_after_success(research: Research) -> None:
    calls: list[int] = []

    async def count() -> int:
        calls.append(1)
        return len(calls)

    agent = research.agent(count=count)
    results = [run(agent.execute_workflow(flow(step("count")), "again")) for _ in range(2)]
    assert [one.results for one in results] == [{"count": 1}, {"count": 2}]


def test_cancelled_execution_stops_its_session_and_can_be_resumed(research: Research) -> None:
    begun = asyncio.Event()
    waits = True

    async def long() -> str:
        begun.set()
        if waits:
            await asyncio.Event().wait()
        return "done"

    agent = research.agent(long=long)

    async def cancel() -> None:
        work = asyncio.create_task(agent.execute_workflow(flow(step("long")), "cancelled"))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    run(cancel())
    (listed,) = run(agent.list_sessions())
    assert listed["status"] == "stopped"
    waits = False
    assert run(agent.resume_workflow("cancelled")).results == {"long": "done"}


def test_state_that_was_saved_without_a_session_is_continued(research: Research) -> None:
    """What another program, or a lost Redis, left behind: completed steps are not called again."""

    calls: list[str] = []

    async def tool(name: str, given: Any = None) -> Any:
        calls.append(name)
        return [name, given]

    workflow = flow(
        step("a", "tool", arguments={"name": "a"}),
        step("b", "tool", arguments={"name": "b", "given": "${a}"}),
    )
    agent = research.agent(tool=tool)
    state = WorkflowState("left", workflow, completed_steps=["a"], step_results={"a": "from then"})
    run(agent.state_manager.save_state(state))
    result = run(agent.resume_workflow("left"))
    assert calls == ["b"]
    assert result.results == {"a": "from then", "b": ["b", "from then"]}


def test_step_that_costs_much_waits_for_an_approval(research: Research) -> None:
    answers = iter([False, True])
    calls: list[str] = []

    async def tool(name: str) -> str:
        calls.append(name)
        return name

    approval = CostApproval(decide=lambda _step, _cost: next(answers))
    agent = research.agent(tool=tool, more={"approval": approval})
    workflow = flow(
        step("cheap", "tool", arguments={"name": "cheap"}, estimated_cost=0.05),
        step("dear", "tool", arguments={"name": "dear"}, estimated_cost=0.5, depends_on=["cheap"]),
    )
    denied = run(agent.execute_workflow(workflow, "dear"))
    assert (denied.success, list(denied.results)) == (False, ["cheap"])
    assert "step 'dear' was not approved" in denied.message
    (listed,) = run(agent.list_sessions())
    assert listed["status"] == "stopped"
    assert run(agent.resume_workflow("dear")).success
    assert calls == ["cheap", "dear"]
    assert [(one.step, one.decision) for one in approval.history] == [
        ("cheap", "not asked"), ("dear", "denied"), ("dear", "approved"),
    ]  # fmt: skip


def estimate_of_nothing(_: Any) -> float:
    raise LookupError("no prices")


async def asynchronous_estimate(_: Any) -> float:
    return 0.0


@pytest.mark.parametrize("estimate", [estimate_of_nothing, asynchronous_estimate])
def test_cost_that_cannot_be_estimated_is_asked_about(research: Research, estimate: Any) -> None:
    asked: list[float | None] = []

    def decide(_: Any, cost: float | None) -> bool:
        asked.append(cost)
        return True

    approval = CostApproval(estimate=estimate, decide=decide)
    agent = research.agent(search=search, more={"approval": approval})
    assert run(agent.execute_workflow(flow(step("search", arguments={"query": "q"})))).success
    assert asked == [None]
