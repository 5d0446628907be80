"""The example of the design that asked for workflows runs as it was written there."""

from __future__ import annotations

import sys

import pytest

from tests.acceptance.conftest import MakeProject
from tests.acceptance.project import Project

pytestmark = pytest.mark.acceptance

#: Unchanged but for its import.
EXAMPLE = """\
# workflows/tdd.py
from leadhand import Workflow

wf = Workflow("tdd")
wf.phase("red", task="Write failing tests for src/auth", checker="pytest tests/")
wf.phase("green", task="Make tests pass", checker="pytest tests/", max_iterations=5)
wf.phase("refactor", task="Refactor for clarity", checker="agent: Review. ACCEPT/RETRY")
results = wf.run()

# If any phase called `leadhand exit`, results contain the reason
for name, r in results.items():
    if r.verdict == "exit":
        print(f"Workflow stopped at {name}: {r.exit_reason}")
"""
#: Works and judges: each phase is refused once, the last one by its review.
AGENT = """
import pathlib, sys
prompt = sys.stdin.read()
tests = pathlib.Path("tests/test_auth.py")
again = "# Previous Attempt" in prompt
if "You are the checker" in prompt:
    assert "Review. ACCEPT/RETRY" in prompt
    print("The names are clear now.\\nACCEPT" if "clearer" in prompt else "Rename it.\\nRETRY")
elif "Refactor" in prompt:
    print("clearer names" if "Rename it." in prompt else "shorter")
else:
    tests.write_text("def test_auth():\\n    assert " + str(again))
    print("wrote", tests, "again" if again else "")
"""
AGENTS = f"""
[agents.scripted]
command = ["{sys.executable}", "agent.py"]
"""


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    """A folder with modules of our names, which nothing of ours may import."""
    project = make_project(LEADHAND_DEFAULT_AGENT="scripted")
    project.write("agent.py", AGENT)
    project.write("agents.toml", AGENTS)
    project.write("tests/test_nothing.py", "def test_nothing():\n    pass\n")
    for name in ("app", "api", "tasks", "workers"):
        project.write(f"{name}.py", f"raise RuntimeError('{name}.py of the user was imported')\n")
    project.write("workflows/tdd.py", EXAMPLE)
    return project


@pytest.mark.timeout(300)  # seven real runs of pytest, and six of an agent
def test_the_seeds_example_runs_unchanged_beside_hostile_modules(project: Project):
    ended = project.leadhand("workflow", "workflows/tdd.py", "--json", timeout=120)
    assert ended.code == 0, ended.err
    assert "was imported" not in ended.err
    phases = ended.json()["phases"]
    assert [(p["name"], p["verdict"], p["iterations"]) for p in phases] == [
        ("red", "accept", 2),
        ("green", "accept", 2),
        ("refactor", "accept", 2),
    ]
    (review,) = phases[2]["history"][0]["checks"]
    assert (review["verdict"], review["decided_by"]) == ("retry", "line")
    assert "Rename it." in phases[2]["history"][0]["feedback"]


@pytest.mark.slow
def test_every_command_works_beside_hostile_modules(project: Project):
    session = project.detached("--checker", "true")
    for command in ("wait", "show", "logs", "watch"):
        ended = project.leadhand(command, session)
        assert ended.code == 0, ended.err
    assert project.leadhand("resume", session).code == 1
    assert project.leadhand("doctor").code == 0
    assert project.leadhand("rm", session).code == 0
    assert project.sessions() == []
