"""A restart of the fleet's Redis, with the users that we ship, keeps every session."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.deploy.compose import Topology, new_environment
from tests.deploy.talking import WAITS, call, ended, marks, submit
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Topology]:
    topology = Topology(tmp_path, new_environment(LEADHAND_LEASE_S="2", LEADHAND_DRAIN_S="0"))
    (topology.work / "waits.py").write_text(WAITS)
    try:
        topology.up("redis", "api", "worker")
        yield topology
    finally:
        topology.close()


def listed(fleet: Topology) -> dict[str, Any]:
    """Every session by id, as the API lists it."""
    return {item["id"]: item for item in call(fleet, "GET", "/v1/sessions")["items"]}


def restart_redis(fleet: Topology, number: int) -> None:
    (server,) = fleet.containers["redis"]
    server.process.send_signal(number)
    server.process.wait(timeout=20)
    server.restart()
    fleet.wait_until_healthy("redis")


def test_restarted_redis_has_every_session_and_runs_the_active_ones_on(fleet: Topology) -> None:
    (fleet.work / "now").touch()
    finished = submit(fleet, "now")
    result = ended(fleet, finished)
    active = submit(fleet, "later", fleet.work)
    wait_until(lambda: marks(fleet) == 2)
    before = listed(fleet)
    for number in (signal.SIGTERM, signal.SIGKILL):
        restart_redis(fleet, number)
        fleet.wait_until_healthy("api")
        assert listed(fleet).keys() == before.keys() == {finished, active}
        assert call(fleet, "GET", f"/v1/sessions/{finished}/result") == result
    (fleet.work / "later").touch()
    assert ended(fleet, active)["verdict"] == "accept"


@pytest.fixture
def redis_alone(tmp_path: Path) -> Iterator[Topology]:
    topology = Topology(tmp_path, new_environment())
    try:
        topology.up("redis")
        yield topology
    finally:
        topology.close()


@pytest.mark.slow
def test_default_user_cannot_log_in_after_a_restart(redis_alone: Topology) -> None:
    restart_redis(redis_alone, signal.SIGTERM)
    port = int(redis_alone.ports["6379"])
    with redis.Redis(port=port) as anonymous, pytest.raises(redis.AuthenticationError):
        anonymous.ping()
    for password in ("", "default"):
        with redis.Redis(port=port) as client, pytest.raises(redis.AuthenticationError):
            client.execute_command("AUTH", "default", password)
