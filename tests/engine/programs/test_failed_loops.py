"""Loops that fail: on_fail, retries of a loop, and the limits on stages."""

from __future__ import annotations

from tests.engine.driving import (
    Bench,
    loop,
    program,
    step,
)
from tests.engine.programs.iterations import ITERATION, iterate


def test_loop_that_may_be_passed_over_leaves_a_warning(bench: Bench):
    drive = bench.start(
        program(loop("red", *ITERATION, turns=1, on_fail="continue"), step("after"))
    )
    iterate(drive, "red~1", "retry")
    assert drive.live == {"after"}
    drive.do("after")
    assert drive.warnings() == [
        "red ended with max_iterations and was passed over: not accepted within 1 iteration"
    ]
    drive.ended_well()


def test_loop_is_run_again_as_often_as_its_retries_grant(bench: Bench):
    drive = bench.start(program(loop("red", *ITERATION, turns=1, on_fail="retry", retries=2)))
    iterate(drive, "red~1", "retry")
    assert drive.live == {"red~2[1]/do"}
    iterate(drive, "red~2", "terminate")
    assert drive.live == {"red~3[1]/do"}
    assert iterate(drive, "red~3", "retry").ended == "failed"
    assert drive.counters()["phase_retries"] == 2
    assert drive.ledger() == [
        ("red", 1, 1, "retry"),
        ("red", 2, 1, "terminate"),
        ("red", 3, 1, "retry"),
    ]
    drive.ended_well("failed")


def test_loop_that_was_tampered_with_ends_the_session(bench: Bench):
    red = loop("red", *ITERATION, turns=1, on_fail="retry", retries=2)
    drive = bench.start(program(red, step("after")))
    why = {"code": "tampered", "text": "a test was changed", "at": "red~1[1]/do"}
    drive.do("red~1[1]/do", verdict="terminate", reason=why)
    assert (drive.status, drive.reason, drive.live) == ("failed", why, set())
    assert drive.control("resume").word == "done"


def test_retry_that_the_stages_limit_forbids_is_not_taken(bench: Bench):
    red = loop("red", *ITERATION, turns=1, on_fail="retry", retries=5)
    drive = bench.start(program(red), budget={"stage_stops": 2})
    iterate(drive, "red~1", "retry")
    assert drive.live == {"red~2[1]/do"}
    iterate(drive, "red~2", "terminate")
    assert (drive.status, drive.reason["code"], drive.reason["at"]) == (
        "failed", "circuit_open", "red~2",
    )  # fmt: skip
    assert drive.reason["beneath"] == drive.turn("red~2")["reason"]
    assert drive.counters()["phase_retries"] == 1
    assert drive.control("resume").word == "refused"
    assert drive.control("resume", budget={"stage_stops": 3}).word == "done"
    iterate(drive, "red~3", "retry")
    assert (drive.field("stops"), drive.field("stops/red")) == ("3", "3")
    drive.ended_well("failed")


def test_stops_of_all_stages_count_together_also_of_those_passed_over(bench: Bench):
    passed = [loop(name, *ITERATION, turns=1, on_fail="continue") for name in ("a", "b", "c")]
    drive = bench.start(program(*passed), budget={"stage_stops": 1, "stops": 2})
    iterate(drive, "a~1", "retry")
    assert drive.live == {"b~1[1]/do"}
    iterate(drive, "b~1", "retry")
    assert (drive.status, drive.reason["code"], drive.live) == ("failed", "stop_limit", set())
    assert drive.control("resume").word == "refused"
    assert drive.control("resume", budget={"stops": 9}).word == "done"
    assert drive.live == {"c~1[1]/do"}
    iterate(drive, "c~1", "accept")
    drive.ended_well()


def test_loops_within_a_stage_are_no_stages(bench: Bench):
    inner = loop("inner", step("ask"), turns=1, on_fail="continue")
    drive = bench.start(program(loop("outer", inner, turns=3)), budget={"stops": 1})
    drive.do("outer~1[1]/inner~1[1]/ask")
    assert (drive.field("stops"), drive.live) == (None, {"outer~1[2]/inner~1[1]/ask"})


def test_first_run_and_tenth_run_lie_apart(bench: Bench):
    body = (step("stop", "break", needs=()), step("slow", needs=()))
    drive = bench.start(program(loop("green", *body, turns=1, on_fail="retry", retries=10)))
    for run in range(1, 11):
        drive.do(f"green~{run}[1]/slow")
        drive.do(f"green~{run}[1]/stop")
    running = drive.take("green~11[1]/slow")
    drive.do("green~11[1]/stop", verdict="accept")
    assert drive.turn("green~11")["state"] == "closing"
    drive.settle(running)
    drive.ended_well()


def test_retried_run_reads_nothing_of_the_run_before(bench: Bench):
    body = (step("a", needs=()), step("b", needs=()), step("j", "judge", needs=("a", "b")))
    drive = bench.start(program(loop("l", *body, on_fail="retry", retries=1), step("after")))
    drive.do("l~1[1]/a")
    drive.do("l~1[1]/b", "failed")
    assert drive.live == {"l~2[1]/a", "l~2[1]/b"}
    assert drive.do("l~2[1]/b").hints == ()
    drive.do("l~2[1]/a")
    drive.do("l~2[1]/j", verdict="accept")
    drive.do("after")
    drive.ended_well()
