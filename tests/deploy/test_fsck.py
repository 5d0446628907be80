"""`leadhand fsck` with the users that we ship: it finds what is left in the broker's queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.settings import Settings
from tasks.celery_app import make_celery
from tests.deploy.compose import Topology, new_environment
from tests.deploy.talking import call, refusals

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Topology]:
    topology = Topology(tmp_path, new_environment())
    try:
        topology.up("redis", "api")
        yield topology
    finally:
        topology.close()


def test_fsck_drops_messages_of_a_queue_without_workers(fleet: Topology) -> None:
    password = fleet.environment["REDIS_BROKER_PASSWORD"]
    url = f"redis://broker:{password}@127.0.0.1:{fleet.ports['6379']}/1"
    with make_celery(Settings(broker_url=url)) as celery:
        args = ("00000000", "00000000", "do")
        celery.send_task("leadhand.agent", args=args, queue="agents@far", priority=5)
    found = call(fleet, "POST", "/v1/fsck", {"repair": True})["items"]
    what = (
        "1 message in agents@far for deleted sessions, or for sessions that do not use this queue"
    )
    assert [(one["kind"], one["what"], one["mended"]) for one in found] == [
        ("message_stray", what, True)
    ]
    assert call(fleet, "POST", "/v1/fsck", {})["items"] == []
    assert refusals(fleet) == []
