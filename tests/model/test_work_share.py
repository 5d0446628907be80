"""The counted work of programs never exceeds what is expected, and is all of it at the end."""

from __future__ import annotations

from random import Random

import pytest

from app.core import routing
from app.core.records import Grant
from tests.engine.driving import Bench, Drive, loop, program, step
from tests.model.random_programs import random_program
from tests.model.test_whole_programs import Oracle, Schedule, settled

FEW, ALL = range(15), range(300)


class Counting(Schedule):
    """A schedule that looks at the counters after each call."""

    def claim(self) -> None:
        self.check()
        super().claim()

    def check(self) -> None:
        expected, covered = counters(self)
        assert 0 <= covered <= expected


def counters(schedule: Schedule) -> tuple[int, int]:
    """What the session expects, and what is covered."""
    drive = schedule.drive
    found = drive.bench.store.values(drive.ref, "session", ["expected", "covered"])
    return int(found["expected"]), int(found["covered"])


def check_program(bench: Bench, seed: int) -> bool:
    """Run one program under one schedule; returns whether it completed."""
    schedule = Counting(bench, settled(random_program(Random(seed).choice)), Oracle(seed), seed)
    schedule.run()
    schedule.check()
    expected, covered = counters(schedule)
    if schedule.drive.status == "completed":
        assert covered == expected, seed
    return schedule.drive.status == "completed"


def check_programs(bench: Bench) -> None:
    assert sum(check_program(bench, seed) for seed in FEW) >= 3


def test_work_of_a_completed_session_is_covered(bench: Bench) -> None:
    check_programs(bench)


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.timeout(600)
def test_work_of_many_completed_sessions_is_covered(bench: Bench) -> None:
    assert sum(check_program(bench, seed) for seed in ALL) >= 60


def grant(drive: Drive, address: str) -> Grant:
    return drive.claim(address).grants[0]


def share(bench: Bench, drive: Drive) -> tuple[int, int]:
    values = bench.store.values(drive.ref, "session", ["covered", "expected"])
    return int(values["covered"]), int(values["expected"])


def test_loop_that_is_accepted_early_needs_no_further_iterations(bench: Bench) -> None:
    body = loop("l", step("do", "agent"), step("check", "check"), step("judge", "judge"), turns=4)
    drive = bench.start(program(body, step("after")))
    assert share(bench, drive) == (0, 4 * 36 + 5)
    drive.settle(grant(drive, "l~1[1]/do"))
    assert share(bench, drive) == (30, 149)
    drive.settle(grant(drive, "l~1[1]/check"))
    drive.settle(grant(drive, "l~1[1]/judge"), "succeeded", "retry")
    assert share(bench, drive) == (36, 149)
    for name, verdict in (("do", None), ("check", None), ("judge", "accept")):
        drive.settle(grant(drive, f"l~1[2]/{name}"), "succeeded", verdict)
    assert share(bench, drive) == (144, 149)
    drive.settle(grant(drive, "after"))
    assert share(bench, drive) == (149, 149)


def test_rest_of_an_iteration_that_is_passed_over_is_covered(bench: Bench) -> None:
    leave = step("leave", "break", ends="iteration")
    drive = bench.start(program(loop("l", step("a"), leave, step("b", "agent"), turns=3)))
    drive.settle(grant(drive, "l~1[1]/a"))
    drive.settle(grant(drive, "l~1[1]/leave"), "succeeded", "accept")
    assert share(bench, drive) == (36, 108)


def test_items_count_once_their_list_is_known(bench: Bench) -> None:
    each = step("each", for_each="${list:text}")
    drive = bench.start(program(step("list"), each))
    assert share(bench, drive) == (0, 10)
    drive.settle(grant(drive, "list"), expand={"each": ['"a"', '"b"', '"c"']})
    assert share(bench, drive) == (5, 20)
    drive.settle(grant(drive, "each~1#2"))
    assert share(bench, drive) == (10, 20)


def test_time_of_a_stopped_session_is_no_time_of_its_work(bench: Bench) -> None:
    drive = bench.start(program(step("a"), step("b")))
    bench.tick(10)
    drive.settle(grant(drive, "a"))
    drive.control("stop")
    bench.tick(1000)
    drive.control("resume")
    bench.tick(10)
    began = int(bench.store.values(drive.ref, "session", ["began"])["began"])
    assert bench.clock.now - began == 20_000


def test_largest_work_is_bounded() -> None:
    inner = step("do", "agent")
    for name in "abcdefg":
        inner = loop(name, inner, turns=10_000)  # type: ignore[assignment]
    assert routing.routes(program(inner))[""]["size"] == routing.MOST_WORK
