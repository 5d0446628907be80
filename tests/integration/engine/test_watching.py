"""The fleet overview of a busy fleet: waiting, running and overdue steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from app.fleet import overview as fleet_queries
from app.fleet.overview import LATELY
from tests.fleet import Fleet
from tests.silent_engine import loop, silent_engine
from tests.waiting import wait_until

HOUR_MS = 3_600_000
WAITS = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""


class Clock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=5)
    yield fleet
    fleet.close()


def test_who_does_what_and_what_waits_in_which_queue(fleet: Fleet) -> None:
    fleet.worker("one", LEADHAND_CONCURRENCY="1")
    doer = fleet.script("doer.py", WAITS)
    first = fleet.loop(doer, "true")
    watch = fleet.engine.fleet
    wait_until(lambda: watch.workers()[0].running)
    ((at_work,),) = [worker.running for worker in watch.workers()]
    assert (at_work.session, at_work.address, at_work.action) == (
        first,
        "loop~1[1]/do",
        "agent",
    )
    assert at_work.process.startswith("one/")
    assert at_work.since is not None
    other = fleet.folder / "other"
    other.mkdir()
    second = fleet.loop(f"{doer} 2", "true", cwd=str(other))
    queue = next(q for q in watch.queues() if q.queue == "agents@local")
    assert (queue.running, queue.ready, queue.consumers, queue.slots) == (1, 1, 1, 1)
    assert queue.oldest_ready_s is not None
    assert queue.oldest_ready_s < 10
    assert queue.depth >= 1
    assert watch.overview().sessions["active"] == 2
    for folder in (fleet.folder, other):
        (folder / "go").touch()
    (other / "doer.py").write_text(WAITS)
    for session in (first, second):
        assert fleet.ended(session).status == "completed"
    assert watch.recent_ends().iterations == {1: 2}
    assert watch.recent_ends().verdicts == {"accept": 2}
    assert dict(watch.recent_ends().reasons) == {("completed", "done"): 2}
    assert not [step for worker in watch.workers() for step in worker.running]


def test_a_step_that_nobody_takes_grows_old_in_its_queue_and_is_overdue(store_url: str) -> None:
    clock = Clock()
    engine = silent_engine(store_url, clock=clock)
    engine.submit.document(loop())
    clock.ms += HOUR_MS
    (queue,) = engine.fleet.queues()
    assert (queue.queue, queue.ready, queue.consumers) == ("agents", 1, 0)
    assert queue.oldest_ready_s == 3600
    fleet = engine.fleet.overview()
    assert fleet.ready.count == 1
    assert fleet.ready.oldest_s is not None
    assert 3500 < fleet.ready.oldest_s <= 3600
    assert fleet.leases.count == 0


def test_messages_that_a_worker_left_behind_are_seen_until_they_are_gone(
    store_url: str,
) -> None:
    engine = silent_engine(store_url)
    told = {"place": "far", "queues": ["agents@far", "checks@far"], "until_ms": 1}
    engine.store.fleet().publish_inventory("gone", json.dumps(told))
    assert engine.fleet.queues() == []
    watch = fleet_queries.Fleet(engine.store, depths=lambda _: {"agents@far": 3})
    (queue,) = watch.queues()
    assert (queue.queue, queue.depth, queue.consumers) == ("agents@far", 3, 0)


def test_a_lease_that_nobody_looks_after_is_overdue(store_url: str) -> None:
    clock = Clock()
    engine = silent_engine(store_url, clock=clock, lease_s=30)
    session = engine.submit.document(loop()).session
    ref = engine.store.ref(session)
    assert ref is not None
    engine.attempts.claim(ref, "loop~1[1]/do", nonce="n", worker="gone/1")
    clock.ms += 90_000
    fleet = engine.fleet.overview()
    assert (fleet.leases.count, fleet.leases.oldest_s) == (1, 60)


def test_what_a_look_costs_does_not_grow_with_the_sessions(
    store_url: str, redis_client: redis.Redis
) -> None:
    engine = silent_engine(store_url)

    def cost() -> int:
        def calls() -> int:
            stats = redis_client.info("commandstats")
            return sum(int(s["calls"]) for name, s in stats.items() if name != "cmdstat_info")

        before = calls()
        engine.fleet.overview()
        engine.fleet.recent_ends()
        return calls() - before

    def end(count: int) -> None:
        for number in range(count):
            session = engine.submit.document(loop(task=f"task {number}")).session
            engine.control.apply(session, "abort")

    end(LATELY)
    few = cost()
    end(LATELY)
    assert cost() == few
