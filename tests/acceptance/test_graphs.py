"""A person's way with graphs: run, a broken source, resume, and one tool called alone."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.acceptance.project import Project
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(120)]

CODE = '''
import time
from pathlib import Path

def search(topic: str, limit: int = 2) -> dict:
    """Finds papers.

    Args:
        topic: What they are about.
    """
    return {"urls": [f"{topic}-{n}" for n in range(limit)]}

def meet(name: str, other: str) -> str:
    """Waits for a step beside this one."""
    Path(name).touch()
    until = time.monotonic() + 20
    while not Path(other).exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{other} does not run beside {name}")
        time.sleep(0.01)
    return name

def report(papers: list, needs: str) -> str:
    """Writes the report."""
    if not Path(needs).exists():
        raise FileNotFoundError(f"{needs} is missing")
    return f"{len(papers)} papers"
'''
STEPS = [
    {"name": "search", "tool": "papers:search", "arguments": {"topic": "${inputs.topic}"}},
    {"name": "left", "tool": "papers:meet", "critical": False, "depends_on": ["search"],
     "arguments": {"name": "l", "other": "r"}},
    {"name": "right", "tool": "papers:meet", "arguments": {"name": "r", "other": "l"},
     "depends_on": ["search"]},
    {"name": "broken", "tool": "papers:search", "critical": False,
     "arguments": {"topic": "x", "limit": "${search.urls}"}},
    {"name": "report", "tool": "papers:report",
     "arguments": {"papers": "${search.urls}", "needs": "style.txt"},
     "depends_on": ["left", "right", "broken"]},
]  # fmt: skip


def test_a_persons_way_with_graphs(make_project: Callable[..., Project]) -> None:
    project = make_project()
    project.write("tools/papers.py", CODE)
    project.write("g.json", json.dumps({"inputs": {"topic": None}, "steps": STEPS}))

    assert project.leadhand("graph", "check", "g.json").out == "g.json: 5 steps, no errors\n"
    wait_until(lambda: "papers:meet" in project.leadhand("tools", timeout=90).out, timeout=60)
    checked = project.leadhand("graph", "check", "g.json", "--workers")
    assert checked.out == "g.json: 5 steps, no errors\n", checked
    project.write("wrong.json", json.dumps({"steps": [{"name": "a", "tool": "papers:gone"}]}))
    checked = project.leadhand("graph", "check", "wrong.json", "--workers")
    assert checked.code == 1
    assert checked.err.startswith(
        "leadhand: wrong.json: steps[0].tool: it is 'papers:gone'; no worker"
    )
    ran = project.leadhand(
        "graph", "run", "g.json", "--input", "topic=agents", "--json", timeout=60
    )
    assert ran.code == 3, ran.err
    result = ran.json()
    assert result["results"]["left"] == "l"
    assert "style.txt is missing" in result["reason"]["text"].splitlines()[0]
    (warning,) = result["warnings"]
    assert "argument 'limit'" in warning

    project.write("style.txt", "short")
    resumed = project.leadhand("resume", result["session_id"], timeout=60)
    assert resumed.code == 0, resumed.err
    wait_until(lambda: project.leadhand("wait", result["session_id"]).code == 0, timeout=60)
    events = project.leadhand("logs", result["session_id"], "--json").out
    assert events.count('"step.settled"') == 6  # the report alone ran twice

    called = project.leadhand(
        "tools", "call", "papers:search", "--arg", "topic=a", "--arg", "limit=1", timeout=60
    )
    assert called.code == 0, called.err
    assert json.loads(called.out) == {"urls": ["a-0"]}
    refused = project.leadhand(
        "tools", "call", "papers:search", "--arg", "topic=a", "--arg", "limit=no"
    )
    assert refused.code == 1
    assert refused.err.startswith("leadhand: --arg limit=...: it ")
    shown = project.leadhand("tools", "show", "papers:search").out
    assert "What they are about." in shown


def test_tool_that_went_missing_is_replaced_by_a_similar_one_of_the_folder(
    make_project: Callable[..., Project],
) -> None:
    project = make_project()
    project.write("tools/papers.py", CODE)
    steps = [
        {"name": "wait", "tool": "papers:meet", "arguments": {"name": "l", "other": "go"}},
        {"name": "the end", "tool": "papers:search", "arguments": {"topic": "${wait}"}},
    ]
    project.write("g.json", json.dumps({"inputs": {"topic": "a"}, "steps": steps}))
    wait_until(lambda: "papers:meet" in project.leadhand("tools", timeout=90).out, timeout=60)
    session = project.leadhand("graph", "run", "g.json", "--detach").out.strip()
    wait_until((project.folder / "l").exists)
    project.write("tools/papers.py", CODE.replace("def search(", "def searches("))
    project.write("go", "")
    assert project.leadhand("wait", session, timeout=60).code == 3
    wanted = f"leadhand fork {session} --tool 'the end=papers:searches' --folder as-is"
    wait_until(lambda: wanted in project.leadhand("explain", session).out)
    refused = project.leadhand("fork", session, "--set", "topik=1")
    assert refused.err.strip() == (
        "leadhand: --set topik=...: there is no input 'topik'; there are: topic;"
        " did you mean 'topic'?"
    )
    fork = project.leadhand(
        "fork", session, "--tool", "the end=papers:searches", "--folder", "as-is", "--json"
    ).json()["id"]
    assert project.leadhand("wait", fork, timeout=60).code == 0
