"""kill -9 in the middle of a run: the session continues, and each step is recorded once."""

from __future__ import annotations

import json
import os
import signal
import sys

import psutil
import pytest

from tests.acceptance.project import WAITS, Project, outcomes
from tests.processes import kill, words
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance

#: Refused in its first turn; its second one waits for `go` and then is good.
REFUSED_THEN_WAITS = f"""
import sys
if "Checker Feedback" not in sys.stdin.read():
    print("too early")
    sys.exit(0)
{WAITS}
pathlib.Path("good.txt").write_text("good")
"""


def begin(project: Project) -> str:
    """A session in the doer of its second turn."""
    project.write("doer.py", REFUSED_THEN_WAITS)
    doer = f"{sys.executable} doer.py"
    session = project.detached("--doer", doer, "--checker", "test -f good.txt")
    wait_until(lambda: project.lines("starts"), timeout=15)
    return session


def require_whole(project: Project, session: str, *, lost: int) -> None:
    """It was accepted in its second turn, and nothing was forgotten, doubled or counted anew."""
    (project.folder / "go").touch()
    ended = project.leadhand("wait", session, "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert (result["verdict"], result["iterations"]) == ("accept", 2)
    assert [entry["work"] for entry in result["history"]] == ["too early", "went"]
    assert [entry["verdict"] for entry in result["history"]] == ["retry", "accept"]
    with project.api() as client:
        recorded = outcomes(client, session)
        counters = client.get(f"/v1/sessions/{session}").json()["counters"]
        steps = client.get(f"/v1/sessions/{session}/steps").json()["items"]
    assert set(recorded.values()) == {1}
    assert set(recorded) == {step["address"] for step in steps}
    assert (counters["steps"], counters["iterations"]) == (6, 2)
    assert (counters["attempts_lost"], counters["attempts_failed"]) == (lost, 0)
    (waited,) = [step for step in steps if step["address"] == "loop~1[2]/do"]
    assert (waited["attempt"], waited["lost"]) == (1 + lost, lost)


def test_a_session_outlives_its_killed_worker(alone: Project):
    session = begin(alone)
    with alone.api() as client:
        (worker,) = client.get("/v1/workers").json()["items"]
    os.kill(worker["pid"], signal.SIGKILL)
    wait_until(lambda: len(alone.lines("starts")) == 2, timeout=20)
    require_whole(alone, session, lost=1)


@pytest.mark.slow
def test_a_session_outlives_the_whole_killed_stack(alone: Project):
    session = begin(alone)
    family = alone.tree()
    assert len(family) > 5
    kill(family)
    alone.up()
    wait_until(lambda: len(alone.lines("starts")) == 2, timeout=20)
    require_whole(alone, session, lost=1)


@pytest.mark.slow
def test_any_command_brings_a_killed_stack_back(alone: Project):
    session = begin(alone)
    supervisor, *family = alone.tree()
    supervisor.kill()
    gone, left = psutil.wait_procs(family, timeout=5)
    assert gone
    assert not left
    assert [one["status"] for one in alone.sessions()] == ["active"]
    (alone.folder / "go").touch()
    require_whole(alone, session, lost=1)


@pytest.mark.slow
def test_a_killed_command_leaves_its_session_to_the_next_one(alone: Project):
    alone.write("doer.py", WAITS)
    command = alone.begin("spawn", "t", "--doer", "python3 doer.py", "--checker", "true")
    wait_until(lambda: alone.lines("starts"), timeout=15)
    command.kill()
    (session,) = alone.sessions()
    assert session["status"] == "active"
    (alone.folder / "go").touch()
    assert alone.leadhand("wait", session["id"]).code == 0
    assert len(alone.lines("starts")) == 1


@pytest.mark.slow
def test_a_spawn_that_waits_outlives_the_servers_that_it_talks_to(alone: Project):
    alone.write("doer.py", WAITS)
    command = alone.begin(
        "spawn", "t", "--doer", f"{sys.executable} doer.py", "--checker", "true", "--json"
    )
    wait_until(lambda: alone.lines("starts"), timeout=15)
    servers = [one for one in alone.tree() if is_server(" ".join(words(one)))]
    assert len(servers) >= 2
    for server in servers:
        server.kill()
    (alone.folder / "go").touch()
    ended = alone.ended(command)
    assert ended.code == 0, ended.err
    assert ended.json()["verdict"] == "accept"
    with alone.api() as client:
        assert set(outcomes(client, ended.json()["session_id"]).values()) == {1}


def is_server(command: str) -> bool:
    """Redis or the API, but not a worker."""
    return (
        "valkey-server" in command or "redis-server" in command or "leadhand.serve api" in command
    )
