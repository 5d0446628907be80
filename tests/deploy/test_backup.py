"""A backup is taken while the fleet works, and restored where the disk was lost."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.compose import ROOT, Topology, new_environment
from tests.deploy.talking import WAITS, call, ended, marks, submit
from tests.waiting import wait_until

BACKUP = ROOT / "deploy" / "redis" / "backup.sh"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Topology]:
    topology = Topology(tmp_path, new_environment(LEADHAND_LEASE_S="2", LEADHAND_DRAIN_S="0"))
    (topology.work / "waits.py").write_text(WAITS)
    try:
        topology.up("redis", "api", "worker")
        yield topology
    finally:
        topology.close()


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_sessions_go_on_from_a_backup(fleet: Topology, tmp_path: Path) -> None:
    (fleet.work / "now").touch()
    over = submit(fleet, "now")
    result = ended(fleet, over)
    under_way = submit(fleet, "later")
    wait_until(lambda: marks(fleet) == 2)
    data, copy = tmp_path / "redis-data", tmp_path / "backup"
    subprocess.run(["sh", BACKUP, data, copy], check=True, timeout=20, capture_output=True)
    lost = submit(fleet, "now")

    containers = [c for those in reversed(fleet.containers.values()) for c in those]
    for container in containers:
        container.kill()
    shutil.rmtree(data)
    data.mkdir()
    shutil.copytree(copy / "appendonlydir", data / "appendonlydir")
    for container in reversed(containers):
        container.restart()
    fleet.wait_until_healthy("api")

    assert call(fleet, "GET", f"/v1/sessions/{over}/result") == result
    (fleet.work / "later").touch()
    assert ended(fleet, under_way)["verdict"] == "accept"
    assert lost not in {s["id"] for s in call(fleet, "GET", "/v1/sessions")["items"]}
