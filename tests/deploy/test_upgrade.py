"""A running fleet is upgraded, workers and API, and taken back: two versions with two schemas."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from app.core.program import SCHEMA_VERSION
from tests.deploy.compose import ROOT, Container, Topology, new_environment
from tests.deploy.talking import WAITS, call, ended, submit
from tests.waiting import wait_until

NOTE = "its program was written by a newer version; ask an API of that version"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Topology]:
    topology = Topology(tmp_path, new_environment(LEADHAND_LEASE_S="2", LEADHAND_DRAIN_S="0"))
    folders = [topology.work / name for name in ("held", "beside")]
    for folder in folders:
        folder.mkdir()
        (folder / "waits.py").write_text(WAITS)
    try:
        topology.up("redis", "api", "worker")
        yield topology
    finally:
        topology.close()


@pytest.fixture
def newer(tmp_path: Path) -> str:
    """The next version of the code, whose programs no older one can read."""
    folder = tmp_path / "newer"
    for package in ("app", "tasks", "workers", "api", "leadhand"):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    program = folder / "app" / "domain" / "program.py"
    text, count = re.subn(
        r"^SCHEMA_VERSION = \d+$",
        rf"SCHEMA_VERSION = {SCHEMA_VERSION + 1}",
        program.read_text(),
        flags=re.MULTILINE,
    )
    assert count == 1
    field = '    name: str = ""\n    body:'
    assert text.count(field) == 1
    program.write_text(text.replace(field, f'    novelty: str = "unheard of"\n{field}'))
    return str(folder)


def api_is(fleet: Topology, **version: str) -> None:
    """The API goes, and comes at the same address in another version."""
    fleet.retire("api")
    fleet.add("api", **version)
    fleet.wait_until_healthy("api")


def workers_are(fleet: Topology, **version: str) -> Container:
    """Workers of another version come first, and then the old ones are drained."""
    old = fleet.containers.pop("worker")
    new = fleet.add("worker", **version)
    wait_until(lambda: new.process.pid in {w["pid"] for w in workers(fleet)}, timeout=40)
    for container in old:  # at once: what one hands back is not for the other
        container.process.terminate()
    assert [container.process.wait(timeout=60) for container in old] == [0] * len(old)
    return new


def runs_at(fleet: Topology, session: str, worker: Container) -> bool:
    """Whether that worker, which is called by its process, has a step of the session."""
    running = call(fleet, "GET", f"/v1/sessions/{session}")["progress"]["running"]
    return any(f"-{worker.process.pid}/" in str(step["worker"]) for step in running)


def workers(fleet: Topology) -> list[dict[str, int]]:
    found: list[dict[str, int]] = call(fleet, "GET", "/v1/workers")["items"]
    return found


def refused(fleet: Topology, path: str) -> httpx2.Response:
    token = fleet.environment["LEADHAND_API_TOKEN"]
    return httpx2.get(
        fleet.url("8765") + path, headers={"Authorization": f"Bearer {token}"}, timeout=10
    )


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_fleet_goes_on_while_it_is_upgraded_and_taken_back(fleet: Topology, newer: str) -> None:
    held = fleet.work / "held"
    older = submit(fleet, "one", held)
    wait_until(lambda: len(list(held.glob("started.*"))) == 1)
    new = workers_are(fleet, PYTHONPATH=newer)
    wait_until(lambda: runs_at(fleet, older, new), timeout=40)
    api_is(fleet, PYTHONPATH=newer)
    (held / "one").touch()
    assert ended(fleet, older)["verdict"] == "accept", "newer workers carry out older programs"
    assert call(fleet, "GET", f"/v1/sessions/{older}")["counters"]["attempts_lost"] == 0
    session = submit(fleet, "two", held)
    wait_until(lambda: runs_at(fleet, session, new), timeout=40)

    api_is(fleet)
    assert call(fleet, "GET", f"/v1/sessions/{session}")["notes"] == [NOTE]
    assert {s["id"] for s in call(fleet, "GET", "/v1/sessions")["items"]} == {older, session}
    answer = refused(fleet, f"/v1/sessions/{session}/steps")
    assert (answer.status_code, answer.json()["detail"]) == (503, NOTE)
    assert int(answer.headers["Retry-After"]) > 0
    workers_are(fleet)
    beside = fleet.work / "beside"
    (beside / "now").touch()
    assert ended(fleet, submit(fleet, "now", beside))["verdict"] == "accept"
    log = fleet.folder / "worker-1.log"
    wait_until(lambda: '"schema"' in log.read_text(), timeout=40)
    (held / "two").touch()
    waits = call(fleet, "GET", f"/v1/sessions/{session}")
    assert (waits["status"], waits["progress"]["running"]) == ("active", []), "what is newer waits"

    workers_are(fleet, PYTHONPATH=newer)
    api_is(fleet, PYTHONPATH=newer)
    assert ended(fleet, session, within_s=60)["verdict"] == "accept"
    assert call(fleet, "GET", f"/v1/sessions/{session}")["counters"]["attempts_lost"] == 0
