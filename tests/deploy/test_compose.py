"""The fleet of docker-compose.yml at work: submitted to over HTTP, killed, drained, watched."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.deploy.compose import ROOT, Container, Topology, new_environment
from tests.deploy.talking import WAITS, call, ended, marks, refusals, submit
from tests.waiting import wait_until


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Topology]:
    topology = Topology(
        tmp_path,
        new_environment(LEADHAND_LEASE_S="2", LEADHAND_DRAIN_S="1", LEADHAND_API_PROCESSES="2"),
    )
    (topology.work / "waits.py").write_text(WAITS)
    (topology.folder / "agents.toml").write_text("")
    try:
        topology.up()
        yield topology
    finally:
        topology.close()


def running(fleet: Topology, session: str) -> list[str]:
    """The workers, by name and pool process, at which a step runs."""
    view = call(fleet, "GET", f"/v1/sessions/{session}")
    return [str(step["worker"]) for step in view["progress"]["running"]]


def at_work(fleet: Topology, session: str, but: str = "") -> str:
    """The worker that has the session's one running step."""
    (worker,) = wait_until(
        lambda: [w for w in running(fleet, session) if w.partition("/")[0] != but], timeout=20
    )
    return str(worker).partition("/")[0]


def container_of(fleet: Topology, worker: str) -> Container:
    (found,) = [
        c for c in fleet.containers["worker"] if worker.endswith(f"-{c.process.pid}")
    ]  # a worker without a name is called by its host and process
    return found


def as_the_page_says(fleet: Topology) -> dict[str, Any]:
    """What the lines of the operator's page submit, by curl; without their engine."""
    page = (ROOT / "docs" / "operations.md").read_text()
    block = page[page.index("### With Docker Compose") :].split("```")[1]
    lines = block[block.index("export LEADHAND_URL") : block.index("leadhand top")]
    lines = lines.replace("http://127.0.0.1:8765", fleet.url("8765"))
    lines = lines.replace('"/work"', json.dumps(str(fleet.work)))
    (fleet.folder / ".env").write_text(
        "".join(f"{name}={value}\n" for name, value in fleet.environment.items())
    )
    told = subprocess.run(
        ["sh", "-eu", "-c", lines], cwd=fleet.folder, capture_output=True, text=True, timeout=20
    )
    assert told.returncode == 0, told.stderr
    submitted: dict[str, Any] = json.loads(told.stdout)
    return submitted


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not there")
def test_what_the_page_submits_by_curl_is_done(fleet: Topology) -> None:
    submitted = as_the_page_says(fleet)
    assert (submitted["place"], submitted["cwd"]) == ("compose", str(fleet.work))
    result = ended(fleet, submitted["id"])
    assert (result["verdict"], result["result_text"]) == ("accept", "hello")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_fleet_bears_a_killed_worker_and_hands_back_what_a_drained_one_runs(
    fleet: Topology,
) -> None:
    first = submit(fleet, "one")
    victim = at_work(fleet, first)
    wait_until(lambda: marks(fleet) == 1)
    container_of(fleet, victim).kill()
    survivor = at_work(fleet, first, but=victim)
    wait_until(lambda: marks(fleet) == 2)
    (fleet.work / "one").touch()
    result = ended(fleet, first)
    assert (result["verdict"], result["iterations"]) == ("accept", 1)
    view = call(fleet, "GET", f"/v1/sessions/{first}")
    assert view["counters"]["attempts_lost"] == 1

    second = submit(fleet, "two")
    assert at_work(fleet, second) == survivor
    container_of(fleet, victim).restart()
    assert container_of(fleet, survivor).terminate(within_s=60) == 0
    (fleet.work / "two").touch()
    assert ended(fleet, second)["verdict"] == "accept"
    assert call(fleet, "GET", f"/v1/sessions/{second}")["counters"]["attempts_lost"] == 0
    _check_logs(fleet, first)
    _lose_a_process_of_the_api(fleet)
    assert _seen_by_flower(fleet) >= {f"leadhand.agent {first}", f"leadhand.agent {second}"}
    assert refusals(fleet) == [], "no service needs more than its user may do"


def _lose_a_process_of_the_api(fleet: Topology) -> None:
    """Another serves on, and gunicorn starts one anew."""
    (api,) = fleet.containers["api"]
    master = psutil.Process(api.process.pid)
    wait_until(lambda: len(master.children()) == 2)
    first, second = master.children()
    first.kill()
    assert call(fleet, "GET", "/v1/fleet")["sessions"]["completed"] == 2
    wait_until(lambda: len({p.pid for p in master.children()} - {first.pid}) == 2)
    assert second in master.children()


def _check_logs(fleet: Topology, session: str) -> None:
    """Each log line of the services is JSON; those of a step have its ids and no content."""
    lines = [
        json.loads(line)
        for log in (*fleet.folder.glob("worker-*.log"), *fleet.folder.glob("api-*.log"))
        for line in log.read_text().splitlines()
        # Celery writes its shutdown messages itself.
        if line and not line.startswith(("worker: ", "Process 'ForkPoolWorker"))
    ]
    started = [line for line in lines if line["message"] == "step started"]
    steps = {line["step"] for line in started if line["session"] == session}
    assert steps == {"loop~1[1]/do", "loop~1[1]/check.test", "loop~1[1]/judge"}
    assert {line["attempt"] for line in started} >= {"1", "2"}
    assert [line for line in lines if "wait for word" in str(line)] == []


def _seen_by_flower(fleet: Topology) -> set[str]:
    """The tasks that Flower lists: names, and the sessions among their arguments."""
    login = base64.b64encode(fleet.environment["FLOWER_BASIC_AUTH"].encode()).decode()
    tasks = httpx2.get(
        fleet.url("5555") + "/api/tasks", headers={"Authorization": f"Basic {login}"}, timeout=10
    )
    assert tasks.is_success, tasks.text
    return {f"{task['name']} {str(task['args'])[2:10]}" for task in tasks.json().values()}
