"""The workflow builder: phases that it adds, input that it refuses, and the results of a run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from leadhand import Client, LoopResult, Phase, PhaseResult, Workflow
from leadhand.loop import (
    TERMINAL_STATES,
    parse_verdict,
    read_result,
    run_loop,
    send_contract,
    spawn_and_run,
    spawn_session,
    wait_for_sessions,
)
from tests.scripted_api import TOKEN, Script, scripted_api


@pytest.fixture
def api() -> Iterator[tuple[Client, Script]]:
    with scripted_api() as (url, script), Client(url, TOKEN) as client:
        yield client, script


def judge(work: str) -> bool:
    return bool(work)


def three_phases(**second: Any) -> Workflow:
    wf = Workflow("tdd")
    wf.phase("red", task="Write failing tests", checker="pytest tests/")
    wf.phase("green", task="Make tests pass", checker="pytest tests/", **second)
    wf.phase("refactor", task="Refactor", checker="agent: Review. ACCEPT/RETRY")
    return wf


def ended_phase(name: str, verdict: str, **more: Any) -> dict[str, Any]:
    passed = verdict == "accept"
    return {"name": name, "passed": passed, "verdict": verdict, "iterations": 1, **more}


# Registration


def test_phases_are_kept_in_the_order_of_their_registration() -> None:
    wf = three_phases()
    assert [phase.name for phase in wf.phases] == ["red", "green", "refactor"]
    assert [phase.name for phase in wf.document().phases] == ["red", "green", "refactor"]


def test_a_phase_has_the_defaults_of_the_documents() -> None:
    phase = Workflow("w").phase("red", task="t", checker="true")
    assert isinstance(phase, Phase)
    assert (phase.max_iterations, phase.rule, phase.on_fail) == (3, "all", "stop")
    assert (phase.pipe_from, phase.file_scope, phase.verify) == ([], [], [])
    assert phase.result is None


def test_name_task_and_checker_of_a_phase_may_be_positional() -> None:
    wf = Workflow("w")
    wf.phase("red", "write tests", "pytest tests/")
    wf.phase("green", "pass them", checkers=["true"])
    assert [(p.name, p.task) for p in wf.phases] == [
        ("red", "write tests"),
        ("green", "pass them"),
    ]
    assert [p.checkers[0].command for p in wf.document().phases] == ["pytest tests/", "true"]


def test_everything_else_of_a_phase_is_by_keyword() -> None:
    with pytest.raises(TypeError):
        Workflow("w").phase("red", "task", "true", ["false"])  # type: ignore[call-arg]


def test_a_phase_takes_several_checkers_and_a_rule() -> None:
    wf = Workflow("w")
    wf.phase("p", task="t", checkers=["true", "agent: look", "callable: a.b:c"], rule=2)
    checkers = wf.document().phases[0].checkers
    assert [(c.command, c.prompt, c.callable) for c in checkers] == [
        ("true", None, None), (None, "look", None), (None, None, "a.b:c"),
    ]  # fmt: skip


def test_a_phase_without_pipes_is_piped_from_the_one_before_it() -> None:
    assert three_phases(pipe_from=[]).document().phases[1].pipe_from == ()


@pytest.mark.parametrize("pipe", ["red", ["red"]])
def test_pipe_and_pipe_from_are_two_names_for_one_thing(pipe: str | list[str]) -> None:
    assert three_phases(pipe=pipe).document().phases[1].pipe_from == ("red",)
    assert three_phases(pipe_from=pipe).phases[1].pipe_from == ["red"]


def test_the_workflow_names_who_works_where_a_phase_does_not() -> None:
    wf = Workflow("w", doer="python doer.py", model="large")
    wf.phase("a", task="t", checker="true")
    wf.phase("b", task="t", checker="true", agent="claude", model="small")
    document = wf.document()
    assert document.doer is not None
    assert document.doer.command == "python doer.py"
    assert document.model == "large"
    first, second = document.phases
    assert first.doer is None
    assert second.doer is not None
    assert second.doer.agent == "claude"


def test_functions_travel_by_their_names() -> None:
    wf = Workflow("w", doer=judge)
    wf.phase("p", task="t", checker=judge)
    document = wf.document()
    assert document.doer is not None
    assert document.doer.callable == f"{__name__}:judge"
    assert document.phases[0].checkers[0].callable == f"{__name__}:judge"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"on_fail": "maybe"}, "on_fail is 'maybe'; use 'stop', 'continue' or 'retry:N'"),
        ({"on_fail": "retry:0"}, "on_fail is 'retry:0'"),
        ({"on_fail": "retry:many"}, "on_fail is 'retry:many'"),
        ({"pipe": ["later"]}, "unknown phase 'later'; name an earlier phase: 'red'"),
        ({"pipe": ["green"]}, "unknown phase 'green'"),
        ({"pipe": ["rde"]}, "has the unknown phase 'rde'; did you mean 'red'?"),
        (
            {"checker": {"kommand": "true"}},
            "checkers.0.kommand is no field that is known here; did",
        ),
        ({"checker": {"kommand": "true"}}, "did you mean 'command'?"),
        ({"doer": {"agnet": "claude"}}, "did you mean 'agent'?"),
        ({"conversation": "continu"}, "conversation is 'continu': use 'fresh' or 'continue'"),
        ({"pipe": ["red"], "pipe_from": ["red"]}, "give pipe or pipe_from, not both"),
        ({"checkers": ["true"]}, "give checker or checkers, not both"),
        ({"doer": "x", "agent": "y"}, "give doer or agent, not both"),
        ({"max_iterations": -1}, "max_iterations is -1: use a whole number from 0 to 10000"),
        ({"rule": "most"}, "rule is 'most': use 'all', 'any' or a number of checkers"),
        ({"rule": 2}, "rule asks for 2 checkers to accept, but there are 1"),
        ({"timeout_s": 0}, "timeout_s is 0: use seconds"),
    ],
)
def test_a_phase_that_cannot_be_run_is_refused_when_it_is_registered(
    settings: dict[str, Any], said: str
) -> None:
    wf = Workflow("tdd")
    wf.phase("red", task="t", checker="true")
    with pytest.raises(ValueError, match=r"phase 'green'") as refusal:
        wf.phase("green", **{"task": "t", "checker": "true", **settings})
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert [phase.name for phase in wf.phases] == ["red"]


def test_a_name_may_stand_only_once() -> None:
    wf = three_phases()
    with pytest.raises(ValueError, match="Duplicate phase name: 'red'"):
        wf.phase("red", task="t", checker="true")


@pytest.mark.parametrize(("task", "checker"), [("", "true"), ("t", ""), ("t", [])])
def test_what_is_empty_is_refused(task: str, checker: Any) -> None:
    with pytest.raises(ValueError, match=r"task|checker"):
        Workflow("w").phase("p", task=task, checker=checker)


def test_a_phase_needs_a_checker() -> None:
    with pytest.raises(ValueError, match="'p' has no checker"):
        Workflow("w").phase("p", task="t")


def test_what_workers_cannot_import_is_refused_with_the_way_out() -> None:
    def inside(work: str) -> bool:
        return bool(work)

    wf = Workflow("w")
    for unfit in (inside, lambda work: work, int):
        with pytest.raises(ValueError, match="module that the workers can import"):
            wf.phase("p", task="t", checker=unfit)


def test_a_function_of_the_workflow_file_itself_is_refused() -> None:
    program = (
        "from leadhand import Workflow\n"
        "def judge(work): return True\n"
        "try:\n    Workflow('w').phase('p', task='t', checker=judge)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "'judge' is in the file that runs the workflow" in done.stdout


def test_a_workflow_without_phases_is_not_run() -> None:
    with pytest.raises(ValueError, match="workflow 'empty' has no phases"):
        Workflow("empty").run()


def test_a_folder_that_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEADHAND_URL", raising=False)
    with pytest.raises(ValueError, match="cwd is '/no/such/folder': there is no such folder"):
        Workflow("w", cwd="/no/such/folder")


# Runs


def test_a_run_gives_the_results_by_name_and_keeps_them_in_the_phases(api: Any) -> None:
    client, script = api
    names = ("red", "green", "refactor")
    script.result = {"phases": [ended_phase(name, "accept", result_text=name) for name in names]}
    wf = three_phases()
    results = wf.run(client=client)
    assert list(results) == ["red", "green", "refactor"]
    assert {type(result) for result in results.values()} == {PhaseResult}
    assert all(result.passed for result in results.values())
    assert [phase.result for phase in wf.phases] == list(results.values())
    assert results["green"].result_text == "green"
    assert wf.session_id == results["red"].loop_result.session_id


def test_an_early_stop_gives_the_phases_that_ran(api: Any) -> None:
    client, script = api
    phases = [ended_phase("red", "accept"), ended_phase("green", "max_iterations")]
    script.result = {"status": "failed", "verdict": "max_iterations", "phases": phases}
    wf = three_phases()
    results = wf.run(client=client)
    assert {name: result.verdict for name, result in results.items()} == {
        "red": "accept",
        "green": "max_iterations",
    }
    assert wf.phases[2].result is None


def test_an_exit_says_where_and_why(api: Any) -> None:
    client, script = api
    exited = ended_phase("red", "exit", exit_reason="the module is event-driven")
    script.result = {"status": "exited", "verdict": "exit", "phases": [exited]}
    results = three_phases(on_fail="continue").run(client=client)
    stopped = [(n, r.exit_reason) for n, r in results.items() if r.verdict == "exit"]
    assert stopped == [("red", "the module is event-driven")]
    assert not results["red"].passed


def test_what_was_built_is_what_is_submitted(api: Any) -> None:
    client, script = api
    three_phases(on_fail="retry:2", pipe="red").run(client=client)
    [document] = script.submitted
    assert document["kind"] == "workflow"
    assert document["phases"][1]["on_fail"] == "retry:2"
    assert document["phases"][1]["pipe_from"] == ["red"]


# The loop under its seed's names


def test_a_loop_can_be_spawned_run_and_read(api: Any) -> None:
    client, script = api
    session = spawn_session("make it pass", "pytest", max_iterations=5, client=client)
    result = run_loop(session, client=client)
    assert result == LoopResult(session, "accept", 1, [], "the work", "")
    assert read_result(session, client=client) == "the work"
    assert wait_for_sessions([session], client=client) == {session: "completed"}
    assert script.submitted[0]["max_iterations"] == 5


def test_spawn_and_run_does_it_in_one_go(api: Any) -> None:
    client, script = api
    script.result = {"status": "exited", "verdict": "exit", "exit_reason": "no way"}
    result = spawn_and_run("t", ["true", "false"], rule="any", doer=judge, client=client)
    assert (result.verdict, result.exit_reason) == ("exit", "no way")
    assert script.submitted[0]["doer"]["callable"] == f"{__name__}:judge"


def test_a_contract_is_a_whole_task(api: Any) -> None:
    client, script = api
    send_contract("# Task\n\nall of it", "true", client=client)
    assert script.submitted[0]["task"] == "# Task\n\nall of it"
    with pytest.raises(ValueError, match="write the task"):
        send_contract("(pending)", "true", client=client)


def test_a_loop_that_cannot_be_run_is_refused(api: Any) -> None:
    client, script = api
    for wrong, meant in (
        ({"max_iteration": 3}, "max_iterations"),
        ({"checkrs": ["true"]}, "checkers"),
        ({"agnt": "claude"}, "agent"),
        ({"budget": {"cost": 3}}, "cost_usd"),
    ):
        with pytest.raises(ValueError, match=rf"known here; did you mean '{meant}'\?"):
            spawn_session("t", "true", **wrong, client=client)
    assert script.submitted == []


def test_a_misspelt_keyword_names_the_one_that_is_meant() -> None:
    with pytest.raises(TypeError, match=r"Workflow.phase\(\) .* did you mean 'max_iterations'\?"):
        Workflow("w").phase("p", "t", "true", max_iteration=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'agnet'; did you mean 'agent'\?"):
        Workflow("w", agnet="claude")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"budget.cost is .* did you mean 'cost_usd'\?"):
        Workflow("w", budget={"cost": 3}).phase("p", "t", "true")


def test_a_phase_that_pipes_from_none_before_it_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown phase 'red'; leave it out, since no phase is"):
        Workflow("w").phase("p", "t", "true", pipe="red")


def test_the_constants_of_the_seed_are_there() -> None:
    assert {"completed", "failed", "aborted", "exited"} <= TERMINAL_STATES


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("ACCEPT", "accept"),
        ("The tests fail on line 3.\nRETRY", "retry"),
        ("This cannot be done.\nTERMINATE", "terminate"),
        ("looks good\naccept", "accept"),
        ("I have no opinion on this.", "retry"),
        ("I would ACCEPT this\nbut the last line says RETRY", "retry"),
        ("either ACCEPT or RETRY or TERMINATE", "terminate"),
        ("Looks good. ACCEPT", "accept"),
        ("UNACCEPTABLE, RETRYING", "retry"),
    ],
)
def test_parse_verdict_finds_the_last_line_with_a_verdict_word(text: str, verdict: str) -> None:
    assert parse_verdict(f" {text}\n") == (verdict, text)


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import leadhand, sys; print('pydantic' in sys.modules, 'httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_package_lists_what_it_exports() -> None:
    import leadhand

    assert {"Client", "LoopResult", "Phase", "PhaseResult", "Workflow"} <= set(dir(leadhand))
    with pytest.raises(AttributeError, match="no attribute 'Workflo'"):
        _ = leadhand.Workflo
