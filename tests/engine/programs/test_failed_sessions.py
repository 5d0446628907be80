"""Resume of failed sessions."""

from __future__ import annotations

from tests.engine.driving import (
    Bench,
    assert_nothing_left,
    loop,
    program,
    step,
)
from tests.engine.programs.iterations import ITERATION, iterate


def test_failed_session_is_resumed_with_its_failed_nodes_and_what_stands_on_them(bench: Bench):
    drive = bench.start(
        program(
            step("a", needs=()),
            step("b", needs=()),
            step("c", needs=("a", "b")),
            step("d", needs=("a",)),
        )
    )
    drive.do("a")
    drive.do("d")
    drive.do("b", "failed")
    assert_nothing_left(drive)
    drive.control("resume")
    assert drive.live == {"b~2"}
    drive.do("b~2")
    assert drive.live == {"c"}
    drive.do("c")
    drive.ended_well()


def test_late_success_in_a_failing_session_counts_when_it_is_resumed(bench: Bench):
    drive = bench.start(
        program(
            step("late", needs=()), step("bad", needs=()), step("then", needs=("late",)),
            step("end", needs=()),
        )
    )  # fmt: skip
    late, end = drive.take("late"), drive.take("end")
    drive.do("bad", "failed")
    drive.settle(end)
    assert drive.settle(late).ended == "failed"
    drive.control("resume")
    assert drive.live == {"bad~2", "then"}
    drive.do("bad~2")
    drive.do("then")
    drive.ended_well()


def test_session_that_had_done_all_when_its_budget_ended_it_completes_at_its_resume(bench: Bench):
    steps = [step(name, needs=()) for name in "ab"]
    drive = bench.start(program(*steps), budget={"steps": 1})
    under_way = drive.take("b")
    drive.do("a")
    drive.settle(under_way)
    assert (drive.status, drive.reason["code"]) == ("failed", "budget")
    drive.control("resume", budget={"steps": 9})
    drive.ended_well()


def test_allowance_of_a_resume_counts_for_a_later_retry_too(bench: Bench):
    drive = bench.start(program(loop("l", *ITERATION, turns=1, on_fail="retry", retries=1)))
    iterate(drive, "l~1", "retry")
    iterate(drive, "l~2", "retry")
    drive.control("resume", max_iterations=2)
    for i in (1, 2):
        iterate(drive, "l~3", "retry", i)
    assert drive.turn("l~4")["max"] == 2
    for i in (1, 2):
        iterate(drive, "l~4", "retry", i)
    drive.ended_well("failed")


def test_loop_that_never_began_keeps_its_number_when_the_session_is_resumed(bench: Bench):
    drive = bench.start(program(step("a"), loop("l", *ITERATION)))
    for run in ("a", "a~2"):
        drive.do(run, "failed", retryable=False)
        drive.control("resume")
    drive.do("a~3")
    assert drive.live == {"l~1[1]/do"}


def test_failed_loop_is_resumed_with_a_new_allowance(bench: Bench):
    drive = bench.start(program(loop("l", *ITERATION, turns=1), step("after")))
    iterate(drive, "l~1", "retry")
    drive.control("resume", max_iterations=2)
    iterate(drive, "l~2", "retry")
    iterate(drive, "l~2", "accept", 2)
    drive.do("after")
    assert drive.counters()["iterations"] == 3
    drive.ended_well()


def test_failed_for_each_is_resumed_with_the_width_it_had(bench: Bench):
    drive = bench.start(program(step("list"), step("w", for_each="${list}"), step("after")))
    drive.do("list", expand={"w": ["1", "2"]})
    drive.do("w~1#1")
    drive.do("w~1#2", "failed")
    drive.control("resume")
    drive.do("w~2#2")
    drive.do("w~2#1")
    drive.do("after")
    drive.ended_well()


def test_resume_of_another_end_than_the_one_that_was_read_is_refused(bench: Bench):
    drive = bench.start(program(step("a")))
    drive.do("a", "failed")
    stale = drive.again(drive.program)
    drive.control("resume")
    bench.tick(1)
    drive.do("a~2", "failed")
    assert drive.run("control", {"verb": "resume", "from": ["failed"], **stale}).word == "refused"
    assert drive.status == "failed"
