"""A user's path with flows: list, check, run, stop, fix the file, answer, read the transcript."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.project import Project
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/flows"


@pytest.fixture
def alone_with_flows(make_project: Callable[..., Project]) -> Project:
    project = make_project()
    shutil.copytree(EXAMPLES, project.folder, dirs_exist_ok=True)
    return project


@pytest.mark.slow
def test_a_persons_way_with_flows(alone_with_flows: Project) -> None:
    project = alone_with_flows
    project.write("flows/broken.json", '{"steps": [{"type": "break"}]}')
    greet = {"inputs": {"who": None}, "steps": [{"type": "human", "question": "${inputs.who}?"}]}
    project.write("flows/greet.json", json.dumps(greet))
    listed = project.leadhand("flows", timeout=90)
    assert listed.code == 0, listed.err
    assert "broken" in listed.out
    assert "broken.json: steps[0].breakOn: it is missing" in listed.out
    checked = project.leadhand("flow", "check", "flows/broken.json")
    assert (checked.code, checked.out) == (1, "")
    assert "flows/broken.json: steps[0].breakOn: it is missing" in checked.err
    assert project.leadhand("flow", "run", "broken").code == 1
    assert "flow 'nope' is not found" in project.leadhand("flow", "run", "nope").err
    unknown = project.leadhand("flow", "run", "review", "--input", "colour=red")
    assert (unknown.code, "no such input" in unknown.err) == (1, True)
    assert unknown.err.startswith("leadhand: --input colour=...: ")
    missing = project.leadhand("flow", "run", "greet")
    assert missing.err.startswith("leadhand: --input who=...: this input has no default")
    unused = project.leadhand("flow", "run", "review", "--agent", "led=scripted")
    assert unused.err.startswith("leadhand: --agent led=...: ")
    stranger = project.leadhand("flow", "run", "review", "--agent", "stranger")
    assert (stranger.code, "steps[0].agentType" in stranger.err) == (1, True)

    project.write("answers.txt", "no\nyes\n")
    ran = project.leadhand("flow", "run", "review", "--title", "My review", timeout=60)
    assert ran.code == 0, ran.err
    assert "polish 1/5 4/6 content?: retry" in ran.out
    session = ran.out.split("session ")[1].partition(":")[0]
    said = project.leadhand("transcript", session)
    assert "step 4 of 6" in said.out
    assert "My review" in project.leadhand("ls").out


@pytest.mark.slow
def test_a_question_is_answered_and_a_changed_file_taken_over(alone_with_flows: Project) -> None:
    project = alone_with_flows
    started = project.leadhand("flow", "run", "question", "--detach", timeout=90)
    session = started.out.strip()
    wait_until(lambda: "asks: Which title" in project.leadhand("show", session).out, timeout=40)
    assert project.leadhand("stop", session).code == 0
    file = project.folder / "flows/question.json"
    flow = json.loads(file.read_text())
    flow["steps"][3]["messages"][0]["content"] = ["Say goodbye."]
    file.write_text(json.dumps(flow))
    assert "has changed since" in project.leadhand("show", session).out
    refused = project.leadhand("resume", session, "--max-iterations", "9")
    assert (refused.code, "this resume opens no loop" in refused.err) == (1, True)
    resumed = project.leadhand("resume", session, "--as", "new", "--after", "0")
    assert resumed.code == 0, resumed.err
    assert " after propose; follow it with: " in resumed.out
    answered = project.leadhand("answer", session, "The second")
    assert answered.code == 0, answered.err
    assert project.leadhand("wait", session).code == 0
    assert "Say goodbye." in (project.folder / "notes.md").read_text()
    late = project.leadhand("answer", session, "The third")
    assert (late.code, "was answered by operator at 2" in late.err) == (1, True)
