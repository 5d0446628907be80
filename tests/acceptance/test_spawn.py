"""One command, one loop: real checkers refuse a first attempt, and accept the second."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.project import LEARNS, Project

pytestmark = pytest.mark.acceptance

#: Its first work adds wrongly and imports for nothing; feedback mends both.
DOER = """\
import pathlib
import sys

prompt = sys.stdin.read()
good = "def add(a, b):\\n    return a + b\\n"
bad = "import os\\n\\n\\ndef add(a, b):\\n    return a - b\\n"
mended = "assert -1 == 3" in prompt and "F401" in prompt
pathlib.Path("calc.py").write_text(good if mended else bad)
print("mended" if mended else "first try")
"""
TESTS = """\
from calc import add


def test_add():
    assert add(1, 2) == 3
"""


def ran_side_by_side(checks: list[dict[str, Any]]) -> bool:
    return bool(max(c["started_ms"] for c in checks) < min(c["ended_ms"] for c in checks))


@pytest.mark.timeout(60)  # two real runs of pytest, on services that start first
@pytest.mark.slow
def test_two_real_checkers_refuse_the_first_attempt_and_accept_the_second(alone: Project):
    alone.write("doer.py", DOER)
    alone.write("calc.py", "")
    alone.write("test_calc.py", TESTS)
    ended = alone.leadhand(
        *("spawn", "make it pass", "--doer", "python doer.py"),
        *("--checker", "pytest -q", "--checker", "ruff check .", "--json"),
        timeout=50,
    )
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    result = json.loads(ended.out)
    assert len(result["session_id"]) == 8
    assert (result["verdict"], result["iterations"]) == ("accept", 2)
    assert (result["result_text"], result["exit_reason"]) == ("mended", "")
    first, second = result["history"]
    assert (first["verdict"], second["verdict"]) == ("retry", "accept")
    for entry in (first, second):
        assert [check["name"] for check in entry["checks"]] == ["pytest", "ruff"]
        assert ran_side_by_side(entry["checks"])
    assert [check["verdict"] for check in first["checks"]] == ["retry", "retry"]
    assert "assert -1 == 3" in first["checks"][0]["feedback"]
    assert "F401" in first["checks"][1]["feedback"]
    assert {check["verdict"] for check in second["checks"]} == {"accept"}


def test_in_a_pipe_the_progress_reads_as_plain_lines(project: Project):
    project.write("doer.py", LEARNS)
    ended = project.leadhand(
        *("spawn", "make it good", "--doer", "python3 doer.py", "--checker", "test -f good.txt")
    )
    assert ended.code == 0
    assert "\x1b" not in ended.out
    assert "retry" in ended.out
    assert "accept after 2 iterations" in ended.out


@pytest.mark.slow
def test_a_second_command_joins_the_services_of_the_first(alone: Project):
    alone.detached("--doer", "true", "--checker", "true")
    run = alone.run
    (session,) = alone.sessions()
    assert alone.run == run
    assert alone.leadhand("wait", session["id"]).code == 0
    shown = alone.leadhand("show", session["id"], "--json").json()
    assert [entry["verdict"] for entry in shown["ledger"]] == ["accept"]


def test_a_task_is_piped_into_spawn_and_read_from_a_file(project: Project):
    project.write("task.md", "The task of the file\n")
    options = "--doer 'cat > seen.txt' --checker 'grep -q \"The task\" seen.txt' --json"
    for command in (f"spawn - {options} < task.md", f"spawn --task-file task.md {options}"):
        ended = project.ended(project.start(["sh", "-c", f"leadhand {command}"]))
        assert (ended.code, ended.json()["verdict"]) == (0, "accept"), ended.err
        assert "The task of the file" in (project.folder / "seen.txt").read_text()


def test_a_detached_workflow_goes_on_in_its_folder_within_its_budget(project: Project):
    project.write("there/here.txt", "")
    project.write(
        "wf.py",
        "from leadhand import Workflow\nwf = Workflow('w', doer='true')\n"
        "wf.phase('a', task='t', checker='test -f here.txt')\nprint(wf.run())\n",
    )
    options = ("--detach", "--cwd", "there", "--label", "nightly", "--max-steps", "40")
    ended = project.leadhand("workflow", "wf.py", *options)
    session = ended.out.strip()
    assert (ended.code, len(session)) == (0, 8), ended.err
    done = project.leadhand("wait", session, "--json").json()
    assert (done["status"], done["verdict"]) == ("completed", "accept")
    view = project.leadhand("show", session, "--json").json()["session"]
    assert (view["label"], view["cwd"]) == ("nightly", str(project.folder / "there"))
    assert view["budget"]["steps"]["limit"] == 40


FAILS = """\
def deeper(depth):
    if not depth:
        raise ValueError("the last word")
    deeper(depth - 1)

deeper(9)
"""


def test_the_end_of_a_failing_output_is_shown(project: Project):
    project.write("fails.py", FAILS)
    command = ("spawn", "t", "--max-iterations", "1")
    ended = project.leadhand(*command, "--doer", "true", "--checker", "python3 fails.py")
    assert ended.code == 3
    (progress,) = (line for line in ended.out.splitlines() if ": retry: " in line)
    line, _, share = progress.rpartition("  [")  # behind it: how much of the work is done
    assert line.endswith("ValueError: the last word")
    assert share.startswith("97 %, about ")
    (missing,) = (line for line in ended.out.splitlines() if "  missing " in line)
    assert missing.endswith("ValueError: the last word")
    ended = project.leadhand(*command, "--doer", "python3 fails.py", "--checker", "true")
    (failed,) = (line for line in ended.out.splitlines() if "exited with code 1" in line)
    assert "doer: failed: " in failed  # nor is it in the lines of the loop and of the session
    assert failed.partition("  [")[0].endswith("ValueError: the last word")


AGENTS = """\
[agents.silent]
command = ["true"]
[agents.priced]
command = ["true"]
prices = {input_usd = 1, output_usd = 2}
"""


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_limit_on_cost_without_known_costs_warns_at_submit(alone: Project):
    alone.write("agents.toml", AGENTS)
    alone.write(
        "wf.py",
        "from leadhand import Workflow\nwf = Workflow('w', agent='silent')\n"
        "wf.phase('a', task='t', checker='true')\nwf.run()\n",
    )
    warning = "leadhand: warning: --max-cost has no effect on agent 'silent': it reports no cost; "
    spawn = ("spawn", "t", "--checker", "true", "--detach", "--agent")
    assert warning in alone.leadhand(*spawn, "silent", "--max-cost", "2").err
    assert warning in alone.leadhand("workflow", "wf.py", "--max-cost", "2", "--detach").err
    assert "warning" not in alone.leadhand(*spawn, "silent", "--max-tokens", "2").err
    assert "warning" not in alone.leadhand(*spawn, "priced", "--max-cost", "2").err
    asks = {
        "type": "llm",
        "agentType": "writer",
        "identifier": "a",
        "messages": [{"role": "user", "content": ["t"]}],
    }
    runs = {"type": "subflow", "flowNames": ["inner"]}
    alone.write("flows/inner.json", json.dumps({"steps": [asks], "agents": {"writer": "silent"}}))
    alone.write("flows/outer.json", json.dumps({"steps": [runs]}))
    flow = ("flow", "run", "outer", "--detach")
    assert warning in alone.leadhand(*flow, "--max-cost", "2").err
    assert "warning" not in alone.leadhand(*flow).err
    assert "warning" not in alone.leadhand(*flow, "--max-cost", "2", "--agent", "priced").err
    assert warning in alone.leadhand(*flow, "--max-cost", "2", "--agent", "writer=silent").err
