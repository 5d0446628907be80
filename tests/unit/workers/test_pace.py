"""Threads of a user's own services rest while there is no work."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from leadhand.models.documents import LoopDocument
from tasks.periodic import EVERY_S, QUIET_S, REST_S, Pace, PeriodicThread, Sweeper
from tests.http_world import LOOP
from tests.silent_engine import silent_engine
from tests.waiting import wait_until


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_process_rests_after_a_quiet_time_and_not_while_it_has_work(clock: Clock) -> None:
    work: list[str] = []
    pace = Pace(may_rest=True, is_busy=lambda: bool(work), clock=clock)
    assert not pace.rests()
    clock.now = QUIET_S
    assert pace.rests()
    work.append("an agent that runs for an hour")
    assert not pace.rests()
    work.clear()
    assert not pace.rests()  # what it began, such as a delay, may be due soon
    clock.now += QUIET_S
    assert pace.rests()
    pace.touch()
    assert not pace.rests()


def test_process_of_a_fleet_never_rests(clock: Clock) -> None:
    pace = Pace(clock=clock)
    clock.now = 100 * QUIET_S
    assert not pace.rests()


@pytest.fixture
def resting(clock: Clock) -> Iterator[tuple[PeriodicThread, Pace, list[float]]]:
    """A thread that would do its next round after an hour."""
    rounds: list[float] = []
    pace = Pace(may_rest=True, clock=clock)
    clock.now = QUIET_S
    thread = PeriodicThread("t", 0.01, lambda: rounds.append(clock.now), pace=pace)
    thread.rest_s = lambda: 3600.0  # type: ignore[method-assign]
    thread.start()
    yield thread, pace, rounds
    thread.stop()


def test_work_wakes_a_thread_that_rests(
    resting: tuple[PeriodicThread, Pace, list[float]],
) -> None:
    _, pace, rounds = resting
    assert not rounds
    pace.touch()
    wait_until(lambda: len(rounds) > 2)


def test_thread_that_rests_stops_at_once(
    resting: tuple[PeriodicThread, Pace, list[float]],
) -> None:
    began = time.monotonic()
    resting[0].stop()
    assert time.monotonic() - began < 5
    assert "t" not in [one.name for one in threading.enumerate()]


def test_sweeper_rests_until_something_is_due_and_at_most_five_seconds(
    store_url: str, clock: Clock
) -> None:
    at = 1_000_000
    engine = silent_engine(store_url, clock=lambda: at)
    pace = Pace(may_rest=True, clock=clock)
    clock.now = QUIET_S
    sweeper = Sweeper(engine, pace=pace)
    sweeper.sweep()
    assert sweeper.rest_s() == REST_S  # nothing is due
    engine.submit.document(LoopDocument.model_validate(LOOP))
    due_ms = engine.store.next_due_ms()
    assert due_ms is not None
    for left_ms, rest_s in ((2_500, 2.5), (300, EVERY_S)):
        at = due_ms - left_ms
        sweeper.sweep()
        assert sweeper.rest_s() == rest_s
    assert pace.rests()
    at = due_ms + 1000
    sweeper.sweep()
    assert not pace.rests()  # what was due may have led to more
