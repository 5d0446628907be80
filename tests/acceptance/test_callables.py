"""Python functions of the working folder as doers and checkers, and results for Python callers."""

from __future__ import annotations

import sys

import pytest

from tests.acceptance.project import Project

pytestmark = pytest.mark.acceptance

WORK = """
from pathlib import Path

def write(task, iteration, previous):
    if previous:
        assert "needs a newline" in previous["feedback"]
    Path("poem.txt").write_text("roses" + ("\\n" if previous else ""))
    return f"{task}, turn {iteration}"

async def judge(work, iteration):
    if Path("poem.txt").read_text().endswith("\\n"):
        return True
    return "retry", f"needs a newline after {work!r}"
"""
FLOW = """
from leadhand import LoopResult, PhaseResult, Workflow

import work

wf = Workflow("poems", doer=work.write)
phase = wf.phase("poem", task="write a poem", checker="callable: work:judge")
wf.phase("count", task="count it", checkers=[work.judge, "test $(wc -l < poem.txt) -eq 1"])
results = wf.run()
poem = results["poem"]
assert isinstance(poem, PhaseResult) and isinstance(poem.loop_result, LoopResult)
assert phase.result is poem and poem.passed
assert poem.loop_result.session_id == wf.session_id
assert poem.verdict == "accept" and poem.loop_result.iterations == 2, poem
assert poem.result_text == "write a poem, turn 2", poem.result_text
assert poem.loop_result.history[0]["checks"][0]["verdict"] == "retry"
print("all is as it should be")
"""


def test_functions_work_and_judge_and_their_caller_has_the_results(project: Project):
    project.write("work.py", WORK)
    project.write("flow.py", FLOW)
    ended = project.leadhand("workflow", "flow.py")
    assert "all is as it should be" in ended.out, ended.err
    assert ended.code == 0


def test_a_workflow_file_is_also_a_plain_python_program(project: Project):
    project.write("work.py", WORK)
    project.write("flow.py", FLOW)
    ended = project.ended(project.start([sys.executable, "flow.py"]))
    assert ended.code == 0, ended.err
    assert "all is as it should be" in ended.out


def test_a_function_that_raises_is_told_with_its_own_line(project: Project):
    project.write("work.py", "def write(task):\n    raise ValueError('no ink')\n")
    ended = project.leadhand(
        *("spawn", "t", "--doer", "true", "--checker", "callable: work:write"),
        *("--max-iterations", "1", "--json"),
    )
    assert ended.code == 3
    feedback = ended.json()["history"][0]["feedback"]
    assert "no ink" in feedback
    assert "work.py" in feedback


def test_a_closure_is_refused_with_the_way_out(project: Project):
    project.write(
        "flow.py",
        "from leadhand import Workflow\n"
        "wf = Workflow('w', doer='true')\n"
        "wf.phase('one', task='t', checker=lambda work: True)\n",
    )
    ended = project.leadhand("workflow", "flow.py")
    assert ended.code == 1
    assert "flow.py:3: " in ended.err
    assert "module" in ended.err
    assert "Traceback" not in ended.err
