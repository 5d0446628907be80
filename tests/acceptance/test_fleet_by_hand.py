"""A fleet whose Redis goes away and comes back, and what Celery's own tools see of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from leadhand.local.processes import free_port
from tests.acceptance.fleet import Fleet
from tests.acceptance.project import LEARNS, WAITS, outcomes
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    try:
        fleet.serve()
        yield fleet
    finally:
        fleet.close()


@pytest.mark.slow
def test_while_redis_is_away_all_wait_and_then_go_on(fleet: Fleet):
    fleet.write("doer.py", LEARNS + WAITS)
    doer = f"{sys.executable} doer.py"
    session = fleet.detached("--doer", doer, "--checker", "test -f good.txt")
    wait_until(lambda: fleet.lines("starts"), timeout=15)
    fleet.redis.kill()
    answer = fleet.client.get(f"/v1/sessions/{session}")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["content-type"] == "application/problem+json"
    assert "Redis" in answer.json()["detail"]
    assert (fleet.status("/readyz"), fleet.status("/healthz")) == (503, 200)
    waiting = fleet.begin("wait", session, "--json")
    assert waiting.stderr is not None
    said = waiting.stderr.readline()
    assert said.startswith("leadhand: Redis")
    assert "retrying" in said
    fleet.redis.relaunch()
    (fleet.folder / "go").touch()
    ended = fleet.ended(waiting)
    assert (ended.code, ended.err) == (0, "")
    assert ended.json()["verdict"] == "accept"
    assert set(outcomes(fleet.client, session).values()) == {1}
    assert fleet.worker is not None
    assert fleet.worker.poll() is None


@pytest.mark.slow
def test_flower_lists_workers_and_tasks_by_name_and_arguments(fleet: Fleet):
    fleet.write("doer.py", WAITS)
    fleet.server("worker", "--name", "two")
    flower = Flower(fleet)
    wait_until(lambda: len(flower.workers()) == 2, timeout=20)
    session = fleet.detached("--doer", "python3 doer.py", "--checker", "true")
    wait_until(lambda: fleet.lines("starts"), timeout=15)
    assert {name.partition("@")[0] for name in flower.workers()} == {"one", "two"}
    (task,) = wait_until(flower.tasks)
    assert (task["name"], task["state"]) == ("leadhand.agent", "STARTED")
    assert task["args"] == str((session, session, "loop~1[1]/do"))
    (fleet.folder / "go").touch()
    assert fleet.leadhand("wait", session).code == 0
    wait_until(lambda: {task["state"] for task in flower.tasks()} == {"SUCCESS"})
    assert {task["name"] for task in flower.tasks()} == {"leadhand.agent", "leadhand.check"}


class Flower:
    """Flower on the fleet's broker, and what its API says."""

    def __init__(self, fleet: Fleet) -> None:
        port = free_port()
        command = [sys.executable, "-P", "-m", "celery", "-b", fleet.broker_url, "flower"]
        with Path(os.devnull).open("w") as output:
            fleet.start(
                [*command, f"--port={port}", "--address=127.0.0.1"],
                output=output,
                FLOWER_UNAUTHENTICATED_API="true",
            )
        self._url = f"http://127.0.0.1:{port}/api"

    def workers(self) -> dict[str, object]:
        return self._read("workers?refresh=1")

    def tasks(self) -> list[dict[str, object]]:
        return [task for task in self._read("tasks").values() if isinstance(task, dict)]

    def _read(self, path: str) -> dict[str, object]:
        try:
            answer = httpx2.get(f"{self._url}/{path}", timeout=5)
        except httpx2.TransportError:
            return {}
        found: dict[str, object] = answer.json() if answer.status_code == 200 else {}
        return found
