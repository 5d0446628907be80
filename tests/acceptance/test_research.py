"""The research example: one source is broken, and a worker is killed in every step in turn."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.project import Project, outcomes
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/research"
STEPS = ("search", "fetch", "extract", "bibliography", "report")
#: Each step does its work, and its first attempt then waits to be killed.
PAUSED = """
import time
from pathlib import Path
import research

def _pause(name):
    try:
        Path(f"{name}.paused").touch(exist_ok=False)
    except FileExistsError:
        return
    time.sleep(120)

def search(topic: str, source: str) -> dict:
    found = research.search(topic, source)
    _pause("search")
    return found

def fetch(url: str) -> dict:
    paper = research.fetch(url)
    _pause("fetch")
    return paper

def extract(paper: dict) -> dict:
    found = research.extract(paper)
    _pause("extract")
    return found

def bibliography(papers: list) -> list:
    found = research.bibliography(papers)
    _pause("bibliography")
    return found

def report(topic: str, papers: list, references: list, file: str) -> dict:
    found = research.report(topic, papers, references, file)
    _pause("report")
    return found
"""


def keys_by_paper(project: Project) -> dict[str, set[str]]:
    """The idempotency keys under which each paper was fetched anew, as the server counted them."""
    found = defaultdict(set)
    for line in project.lines("requests.log"):
        paper, key, known = line.split()
        if known == "new":
            found[paper].add(key)
    return dict(found)


def kill_worker_of(project: Project, session: str, step: str) -> None:
    """Kill the worker that carries out a step, with its processes."""
    with project.api() as client:
        steps = client.get(f"/v1/sessions/{session}/steps").json()["items"]
        workers = client.get("/v1/workers").json()["items"]
    assert any(one["address"].startswith(step) and one["state"] == "running" for one in steps)
    for worker in workers:
        if any(running["session"] == session for running in worker["running"]):
            os.kill(worker["pid"], signal.SIGKILL)


def test_research_survives_a_kill_in_every_step(make_project: Callable[..., Project]) -> None:
    project = make_project()
    shutil.copytree(EXAMPLE, project.folder, dirs_exist_ok=True)
    project.write("tools/paused.py", PAUSED)
    graph = json.loads((EXAMPLE / "research.json").read_text())
    for step in graph["steps"]:
        step["tool"] = step["tool"].replace("research:", "paused:")
    project.write("paused.json", json.dumps(graph))
    project.up()
    server = project.start([sys.executable, "server.py", "requests.log", "0"])
    assert server.stdout is not None
    source = server.stdout.readline().strip()
    wait_until(lambda: "paused:report" in project.leadhand("tools", timeout=90).out, timeout=90)

    given = ("--input", f"source={source}")
    started = project.leadhand("graph", "run", "paused.json", *given, "--detach", timeout=60)
    assert started.code == 0, started.err
    session = started.out.strip()
    for step in STEPS:
        wait_until((project.folder / f"{step}.paused").exists, timeout=60)
        kill_worker_of(project, session, step)
    ended = project.leadhand("wait", session, "--json", timeout=90)
    assert ended.code == 0, ended.err

    report = (project.folder / "report.md").read_text()
    assert "1 of 4 papers could not be read." in report
    assert report.index("S. Lind (2018)") < report.index("A. Ruiz (2019)")
    assert "## Joins without Counters" not in report
    keys = keys_by_paper(project)
    assert set(keys) == {"p1", "p2", "p3", "p4"}
    assert all(len(found) == 1 for found in keys.values()), keys
    with project.api() as client:
        assert set(outcomes(client, session).values()) == {1}
        warnings = client.get(f"/v1/sessions/{session}/result").json()["warnings"]
    assert [text for text in warnings if text.startswith("fetch")]
