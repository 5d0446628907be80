"""Queues that a worker should consume and does not: explain, doctor and views say so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from leadhand.cli.doctor import _workers
from leadhand.cli.render.fleet_text import worker_lines
from leadhand.models.views.fleet import WorkerView
from leadhand.models.views.fleet import WorkerView as ClientsView
from tests.fleet import Fleet
from tests.waiting import wait_until

AGENTS = "agents@local"


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=30)
    yield fleet
    fleet.close()


def the_worker(fleet: Fleet) -> WorkerView:
    (worker,) = fleet.engine.fleet.workers()
    return worker


def consumes(fleet: Fleet) -> list[str]:
    return the_worker(fleet).consumes or []


def consumers_of(fleet: Fleet, queue: str) -> int:
    return next((one.consumers for one in fleet.engine.fleet.queues() if one.queue == queue), 0)


def explained(fleet: Fleet, session: str) -> str:
    return fleet.engine.explainer.explain(session).text


def told_to_users(fleet: Fleet) -> str:
    """What doctor and `leadhand workers` print of the worker."""
    shown = ClientsView.model_validate(the_worker(fleet).model_dump())
    now = datetime.now(UTC)
    findings = [f"{one.level} {one.text}" for one in _workers([shown])]
    return "\n".join([*findings, *worker_lines([shown], now)])


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_cancelled_consumer_is_reported_until_it_is_added_again(fleet: Fleet) -> None:
    fleet.worker("one")
    wait_until(lambda: AGENTS in consumes(fleet))
    assert sorted(consumes(fleet)) == sorted(the_worker(fleet).queues)
    assert "does not" not in told_to_users(fleet)

    fleet.celery.control.cancel_consumer(AGENTS)
    wait_until(lambda: AGENTS not in consumes(fleet))
    session = fleet.loop("true", "true")
    assert explained(fleet, session).endswith(
        f"no worker consumes {AGENTS}; one should, but does not: restart it"
    )
    assert consumers_of(fleet, AGENTS) == 0
    assert f"warn one should consume {AGENTS}, but does not" in told_to_users(fleet)
    assert f"  does not consume {AGENTS}" in told_to_users(fleet)
    assert "queue_unconsumed" in [one.kind for one in fleet.engine.audit.run().items]

    fleet.celery.control.add_consumer(AGENTS)
    wait_until(lambda: AGENTS in consumes(fleet))
    assert fleet.ended(session).status == "completed"
    assert "does not" not in told_to_users(fleet)


@pytest.mark.timeout(60)
def test_added_queue_is_reported(fleet: Fleet) -> None:
    fleet.worker("one")
    wait_until(lambda: AGENTS in consumes(fleet))

    fleet.celery.control.add_consumer("tools@extra")
    wait_until(lambda: "tools@extra" in consumes(fleet))

    assert consumers_of(fleet, "tools@extra") == 1


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_worker_that_shuts_down_by_remote_control_is_reported(fleet: Fleet) -> None:
    """It waits for the body that it runs and takes nothing meanwhile."""
    worker = fleet.worker("one")
    pipe = fleet.folder / "pipe"
    os.mkfifo(pipe)
    busy = fleet.loop(f"touch begun; cat {pipe}", "true")
    wait_until(lambda: (fleet.folder / "begun").exists(), timeout=20)

    fleet.celery.control.shutdown()
    wait_until(lambda: consumes(fleet) == [], timeout=20)
    assert psutil.pid_exists(worker.pid)
    session = fleet.loop("true", "true")
    assert "one should, but does not" in explained(fleet, session)
    assert consumers_of(fleet, AGENTS) == 0

    with pipe.open("w"):
        pass
    worker.wait(timeout=20)
    fleet.worker("two")
    assert {fleet.ended(one).status for one in (busy, session)} == {"completed"}
