"""How many processes a worker's pool has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery.worker import state

from workers.host.pool import QUIET_S, LentSlots, PoolSize

LEAST, MOST = 4, 16


class Pool:
    """Stands in for Celery's pool, of which only the size is of interest."""

    def __init__(self) -> None:
        self.num_processes = LEAST

    def grow(self, number: int) -> None:
        self.num_processes += number

    def shrink(self, number: int) -> None:
        if self.num_processes - number < len(state.reserved_requests):
            raise ValueError("all processes are busy")
        self.num_processes -= number

    def maintain_pool(self) -> None:
        pass


class Worker:
    """A worker's pool, its steps in hand, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.now = 0.0
        self.slots, self.pool = LentSlots(), Pool()
        self.lent = 0
        monkeypatch.setattr(self.slots, "count", lambda: self.lent)
        self._size = PoolSize(
            self.slots, least=LEAST, most=MOST, draining=lambda: False, clock=lambda: self.now
        )
        self.take(0)

    def take(self, steps: int) -> None:
        self._patch.setattr(state, "reserved_requests", range(steps))

    def after(self, seconds: float) -> int:
        self.now += seconds
        self._size.adjust(SimpleNamespace(pool=self.pool))
        return self.pool.num_processes


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def test_pool_grows_while_all_processes_are_busy_up_to_the_most(worker: Worker) -> None:
    sizes = []
    for _ in range(5):
        worker.take(worker.pool.num_processes)
        sizes.append(worker.after(0.5))
    assert sizes == [4, 8, 16, 16, 16]


def test_pool_that_is_full_for_a_moment_keeps_its_size(worker: Worker) -> None:
    for steps in (LEAST, 0, LEAST, 0):
        worker.take(steps)
        assert worker.after(0.5) == LEAST


def test_pool_keeps_its_size_while_a_process_is_idle(worker: Worker) -> None:
    worker.take(LEAST - 1)
    assert {worker.after(QUIET_S) for _ in range(5)} == {LEAST}


def test_pool_shrinks_after_a_quiet_time_and_ends_no_busy_process(worker: Worker) -> None:
    for _ in range(3):
        worker.take(worker.pool.num_processes)
        worker.after(0.5)
    worker.take(6)
    assert worker.after(QUIET_S - 1) == MOST
    sizes = [worker.after(1) for _ in range(20)]
    assert sizes[0] == MOST - 1
    assert sizes[-1] == 11, "half of them are busy"
    worker.take(0)
    assert [worker.after(QUIET_S) for _ in range(20)][-1] == LEAST


def test_lent_slots_are_added_and_are_no_reason_to_grow(worker: Worker) -> None:
    worker.take(LEAST)
    worker.lent = LEAST
    assert worker.after(0.5) == 2 * LEAST
    assert worker.after(0.5) == 2 * LEAST
    worker.lent = 0
    worker.take(0)
    assert [worker.after(0.5) for _ in range(5)][-1] == LEAST
