"""How tests talk to the fleet of docker-compose.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from tests.deploy.compose import Topology
from tests.waiting import wait_until

#: Runs until somebody writes the file that it is told of, and leaves a mark of each start.
WAITS = """
import os, pathlib, sys, time, uuid
pathlib.Path(f"started.{uuid.uuid4().hex}").touch()
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
print("went on at", sys.argv[1])
"""


def call(fleet: Topology, method: str, path: str, body: object = None) -> Any:
    token = fleet.environment["LEADHAND_API_TOKEN"]
    answer = httpx2.request(
        method,
        fleet.url("8765") + path,
        json=body,
        headers={"Authorization": f"Bearer {token}"},
        timeout=10,
    )
    assert answer.is_success, answer.text
    return answer.json()


def submit(fleet: Topology, go: str, folder: Path | None = None) -> str:
    document = {
        "kind": "loop",
        "task": "wait for word",
        "doer": {"command": f"python3 waits.py {go}"},
        "checkers": [f"test -f {go}"],
        "cwd": str(folder or fleet.work),
    }
    return str(call(fleet, "POST", "/v1/sessions", document)["id"])


def ended(fleet: Topology, session: str, within_s: float = 20) -> Any:
    def over() -> bool:
        view = call(fleet, "GET", f"/v1/sessions/{session}")
        return view["status"] in ("completed", "failed")

    wait_until(over, timeout=within_s)
    return call(fleet, "GET", f"/v1/sessions/{session}/result")


def marks(fleet: Topology) -> int:
    return len(list(fleet.work.glob("started.*")))
