"""How doers and checkers are run, as a user of the command line sees it."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.project import Project

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90)]

#: Appends its prompt to a file; fails halfway at its first start.
HALF = """
import os, pathlib, sys
prompt = sys.stdin.read()
with open("prompts", "a") as prompts:
    print(prompt, end="\\n=====\\n", file=prompts)
if not pathlib.Path("half.txt").exists():
    pathlib.Path("half.txt").write_text("half")
    print("wrote half of it")
    print("cannot write", "the other half", file=sys.stderr)
    sys.exit(7)
pathlib.Path("whole.txt").write_text("whole")
"""
RECORDS = """
import sys
with open("prompts", "a") as prompts:
    print(sys.stdin.read(), end="\\n=====\\n", file=prompts)
print("worked")
"""


def prompts(project: Project) -> list[str]:
    return "\n".join(project.lines("prompts")).split("\n=====")[:-1]


def test_a_retried_doer_sees_its_half_done_folder_and_how_it_ended(project: Project):
    project.write("half.py", HALF)
    ended = project.leadhand(
        *("spawn", "write it", "--doer", "python3 half.py", "--doer-attempts", "2"),
        *("--checker", "whole: test -f whole.txt", "--json"),
    )
    assert ended.code == 0, ended.err
    result = ended.json()
    assert (result["verdict"], result["iterations"]) == ("accept", 1)
    assert [check["name"] for check in result["history"][0]["checks"]] == ["whole"]
    first, second = prompts(project)
    assert "Failed Attempt" not in first
    assert "exited with code 7: cannot write the other half" in second
    assert "wrote half of it" in second
    assert "is in this folder" in second


def test_a_doer_without_attempts_left_fails_its_loop(project: Project):
    project.write("half.py", HALF)
    ended = project.leadhand(
        *("spawn", "write it", "--doer", "python3 half.py", "--checker", "true", "--json")
    )
    assert ended.code == 3
    assert ended.json()["verdict"] == "terminate"


def test_a_doer_that_times_out_is_started_again(project: Project):
    doer = "test -f late && exit 0; touch late; echo begun; sleep 60"
    ended = project.leadhand(
        *("spawn", "do it", "--doer", doer, "--doer-attempts", "2", "--doer-timeout", "1"),
        *("--checker", "true", "--json"),
    )
    assert ended.code == 0, ended.err


def test_a_timeout_of_a_checker_is_no_feedback_on_the_work(project: Project):
    project.write("records.py", RECORDS)
    ended = project.leadhand(
        *("spawn", "do it", "--doer", "python3 records.py", "--max-iterations", "2"),
        *("--checker", "slow: test $LEADHAND_ITERATION = 2 || sleep 60"),
        *("--checker-timeout", "0.5", "--json"),
    )
    assert ended.code == 0, ended.err
    first = ended.json()["history"][0]
    assert first["checks"][0]["decided_by"] == "timeout"
    assert first["checks"][0]["feedback"] == "Checker command timed out after 0.5 seconds"
    assert "no verdict on the work" in first["feedback"]
    prompt = prompts(project)[1]
    assert "Iteration 1 of 2 was not judged, because its check timed out." in prompt
    assert "this is no verdict on the work" in prompt
    assert "was not accepted" not in prompt


def test_a_timeout_beside_a_refusal_says_which_is_which(project: Project):
    project.write("records.py", RECORDS)
    project.leadhand(
        *("spawn", "do it", "--doer", "python3 records.py", "--max-iterations", "2"),
        *("--checker", "slow: sleep 60", "--checker", "tests: echo two fail; false"),
        *("--checker-timeout", "0.5"),
    )
    prompt = prompts(project)[1]
    assert "was not accepted" in prompt
    assert "## slow (timed out: no verdict on the work)" in prompt
    assert "## tests (retry)\n\ntwo fail" in prompt


def test_a_rubric_is_recognised_and_named(project: Project):
    project.write("RUBRIC.md", "## Gates\n- `test -f good.txt`\n")
    ended = project.leadhand(
        *("spawn", "do it", "--doer", "echo good > good.txt", "--checker", "RUBRIC.md"),
        *("--checker", "cd . && test -f good.txt", "--json"),
    )
    assert ended.code == 0, ended.err
    (entry,) = ended.json()["history"]
    assert [check["name"] for check in entry["checks"]] == ["RUBRIC", "test"]
    assert [gate["passed"] for gate in entry["checks"][0]["gates"]] == [True]


def test_a_doer_is_told_its_phase(project: Project):
    project.write("records.py", RECORDS)
    project.write(
        "flow.py",
        "from leadhand import Workflow\n"
        "wf = Workflow('w', doer='python3 records.py')\n"
        "wf.phase('green', task='Make it pass', checker='true')\n"
        "wf.run()\n",
    )
    assert project.leadhand("workflow", "flow.py").code == 0
    assert "# Phase\n\ngreen" in prompts(project)[0]


#: What each agent answers, whatever it is asked.
ANSWERS = {
    "critic": "I cannot ACCEPT this",
    "look": 'I looked.\n{"verdict": "retry", "feedback": "mend it"}',
    "unsure": 'You asked for {"answer": "yes"} or {"answer": "no"}, I cannot tell',
}


def answering(project: Project) -> None:
    """Define an agent for each answer."""
    for name, answer in ANSWERS.items():
        project.write(f"answers/{name}", answer)
    entry = '[agents.{0}]\ncommand = ["cat", "answers/{0}"]\n'
    project.write("agents.toml", "".join(entry.format(name) for name in ANSWERS))


@pytest.mark.slow
def test_an_unclear_answer_accepts_nothing_and_the_raw_answer_is_shown(alone: Project):
    answering(alone)
    ended = alone.leadhand(
        *("spawn", "do it", "--doer", "true", "--max-iterations", "1", "--json"),
        *("--checker", "agent(critic): Is it good?", "--checker", "second: agent(look): And this?"),
    )
    assert ended.code == 3, ended.err
    result = ended.json()
    assert result["verdict"] == "max_iterations"
    critic, look = result["history"][0]["checks"]
    assert (critic["name"], critic["verdict"], critic["decided_by"]) == ("critic", "retry", "none")
    assert (look["name"], look["feedback"]) == ("second", "mend it")
    raw = ANSWERS["look"]
    assert look["raw"] == raw
    for command in ("show", "transcript"):
        shown = alone.leadhand(command, result["session_id"]).out
        assert all(line in shown for line in raw.splitlines()), shown


@pytest.mark.slow
def test_an_answer_that_is_yes_and_no_ends_no_loop(alone: Project):
    answering(alone)
    decides = {"type": "break", "agentType": "unsure", "identifier": "a", "question": "Done?"}
    steps = [{"type": "startLoop", "steps": [{**decides, "breakOn": "yes"}]}]
    flow = {"attempts": 1, "steps": steps}
    alone.write("flows/unsure.json", json.dumps(flow))
    ended = alone.leadhand("flow", "run", "unsure", "--json")
    assert ended.code == 3, ended.err
    result = ended.json()
    assert (result["status"], result["verdict"]) == ("failed", "terminate")
    assert "invalid_answer" in json.dumps(result["reason"])
    said = alone.leadhand("transcript", result["session_id"]).out
    assert ANSWERS["unsure"] in said
