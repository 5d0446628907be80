"""How tests talk to the fleet of docker-compose.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import redis

from tests.deploy.compose import Topology
from tests.waiting import wait_until

#: Leaves a mark of each start, and runs until the named file exists.
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


def as_user(fleet: Topology, user: str) -> redis.Redis:
    """A client of the fleet's Redis with one user's password."""
    password = fleet.environment[f"REDIS_{user.upper()}_PASSWORD"]
    port = int(fleet.ports["6379"])
    return redis.Redis(
        port=port, username=user, password=password, decode_responses=True, protocol=2
    )


def refusals(fleet: Topology) -> list[str]:
    """The commands that the server refused to the services since it started."""
    with as_user(fleet, "operator") as client:
        entries = [one for one in client.acl_log() if one["username"] != "operator"]
    return [f"{entry['username']}: {entry['object']}" for entry in entries]


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
