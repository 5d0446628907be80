"""Between phases: piped results, and the effect of a failed phase on the later ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.project import Project

pytestmark = pytest.mark.acceptance

#: Answers with its task, and keeps the prompt that it was given.
DOER = """
import pathlib, sys
prompt = sys.stdin.read()
name = prompt.split()[0]
pathlib.Path(f"{name}.prompt").write_text(prompt)
print(f"this is what {name} found")
"""
HEAD = "from leadhand import Workflow\n\nwf = Workflow('pipes', doer='python3 doer.py')\n"


def run(project: Project, *phases: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the result of a workflow file with these phases."""
    project.write("doer.py", DOER)
    project.write("flow.py", HEAD + "\n".join([*phases, "wf.run()", ""]))
    ended = project.leadhand("workflow", "flow.py", "--json")
    assert ended.out, ended.err
    return ended.code, ended.json()


def shown(project: Project, phase: str) -> str:
    """The prompt that the phase's doer had."""
    return (project.folder / f"{phase}.prompt").read_text()


def test_each_phase_is_shown_what_the_one_before_it_came_to(project: Project):
    code, _ = run(
        project,
        "wf.phase('one', task='one', checker='true')",
        "wf.phase('two', task='two', checker='true')",
        "wf.phase('three', task='three', checker='true')",
    )
    assert code == 0
    assert "Prior Phase Results" not in shown(project, "one")
    assert "**one**: this is what one found" in shown(project, "two")
    assert "**two**: this is what two found" in shown(project, "three")
    assert "what one found" not in shown(project, "three")


def test_a_phase_that_names_its_pipes_is_shown_those_and_no_other(project: Project):
    code, _ = run(
        project,
        "wf.phase('one', task='one', checker='true')",
        "wf.phase('two', task='two', checker='true')",
        "wf.phase('three', task='three', checker='true')",
        "wf.phase('four', task='four', checker='true', pipe=['one', 'two'])",
    )
    assert code == 0
    assert "**one**: this is what one found" in shown(project, "four")
    assert "**two**: this is what two found" in shown(project, "four")
    assert "what three found" not in shown(project, "four")


def test_a_failed_phase_stops_the_workflow(project: Project):
    code, result = run(
        project,
        "wf.phase('one', task='one', checker='true')",
        "wf.phase('two', task='two', checker='false', max_iterations=2)",
        "wf.phase('three', task='three', checker='true')",
    )
    assert code == 3
    assert [(p["name"], p["passed"], p["verdict"]) for p in result["phases"]] == [
        ("one", True, "accept"),
        ("two", False, "max_iterations"),
    ]
    assert result["status"] == "failed"


def test_a_phase_that_is_passed_over_is_labelled_with_its_verdict(project: Project):
    code, result = run(
        project,
        "wf.phase('one', task='one', checker='false', max_iterations=1, on_fail='continue')",
        "wf.phase('two', task='two', checker='true')",
    )
    assert code == 0
    assert result["status"] == "completed"
    assert len(result["warnings"]) == 1
    assert "one" in result["warnings"][0]
    assert [p["passed"] for p in result["phases"]] == [False, True]
    assert "**one** (max_iterations): this is what one found" in shown(project, "two")


def test_a_phase_is_run_again_as_often_as_it_says(project: Project):
    third = "'test $(wc -l < tries) -eq 3', doer='echo x >> tries'"
    code, result = run(
        project,
        f"wf.phase('one', task='one', checker={third}, max_iterations=1, on_fail='retry:2',"
        " baseline=False)",
        "wf.phase('two', task='two', checker='false', max_iterations=1, on_fail='retry:1')",
    )
    assert code == 3
    one, two = result["phases"]
    assert (one["verdict"], one["runs"], one["iterations"]) == ("accept", 3, 3)
    assert (two["verdict"], two["runs"], two["iterations"]) == ("max_iterations", 2, 2)
    assert [entry["run"] for entry in one["history"]] == [1, 2, 3]
    (session,) = project.sessions()
    assert session["counters"]["phase_retries"] == 3


@pytest.mark.slow
def test_the_rule_says_how_many_checkers_must_accept(project: Project):
    def verdict(rule: str, *checkers: str) -> str:
        told = [word for checker in checkers for word in ("--checker", checker)]
        ended = project.leadhand(
            *("spawn", "t", "--doer", "true", "--max-iterations", "1", "--json"),
            *("--rule", rule, *told),
        )
        result = ended.json()
        assert len(result["history"][0]["checks"]) == len(checkers)
        return str(result["verdict"])

    assert verdict("any", "false", "true") == "accept"
    assert verdict("any", "false", "exit 3") == "max_iterations"
    assert verdict("2", "true", "false", "true") == "accept"
    assert verdict("2", "false", "true", "false") == "max_iterations"
    assert verdict("all", "true", "false", "true") == "max_iterations"
