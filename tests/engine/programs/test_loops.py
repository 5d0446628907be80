"""Loops: iterations, nesting, breaks and closing."""

from __future__ import annotations

import pytest

from app.core.program import Loop, Step
from tests.engine.driving import (
    Bench,
    Drive,
    loop,
    program,
    step,
)
from tests.engine.programs.iterations import ITERATION, iterate


def test_loop_goes_round_until_its_judge_accepts(bench: Bench):
    drive = bench.start(program(loop("red", *ITERATION), loop("green", *ITERATION)))
    iterate(drive, "red~1", "retry")
    assert drive.live == {"red~1[2]/do"}
    iterate(drive, "red~1", "accept", 2)
    assert drive.live == {"green~1[1]/do"}
    assert iterate(drive, "green~1", "accept").ended == "completed"
    assert drive.ledger() == [
        ("red", 1, 1, "retry"),
        ("red", 1, 2, "accept"),
        ("green", 1, 1, "accept"),
    ]
    assert drive.counters() == {
        "steps": 12, "iterations": 3, "attempts_failed": 0, "attempts_lost": 0, "phase_retries": 0,
    }  # fmt: skip
    drive.ended_well()


def test_loop_that_is_never_accepted_fails_the_session_at_its_limit(bench: Bench):
    drive = bench.start(program(loop("red", *ITERATION, turns=2), step("after")))
    iterate(drive, "red~1", "retry")
    assert iterate(drive, "red~1", "retry", 2).ended == "failed"
    assert drive.turn("red~1")["verdict"] == "max_iterations"
    assert drive.reason["code"] == "max_iterations"
    assert drive.state("after") == "pending"
    assert [entry[3] for entry in drive.ledger()] == ["retry", "retry"]
    drive.ended_well("failed")


def test_loop_that_is_terminated_fails_the_session_with_the_judges_reason(bench: Bench):
    drive = bench.start(program(loop("red", *ITERATION), step("after")))
    assert iterate(drive, "red~1", "terminate").ended == "failed"
    assert drive.reason["code"] == "terminated"
    assert drive.ledger() == [("red", 1, 1, "terminate")]
    drive.ended_well("failed")


def test_loop_with_no_iterations_to_spend_does_not_run(bench: Bench):
    drive = bench.start(
        program(loop("none", step("a"), turns=0, on_fail="continue"), step("after"))
    )
    assert drive.turn("none~1") | {"reason": None} == {
        "state": "closed", "iteration": 0, "max": 0, "left": 0, "verdict": "max_iterations",
        "reason": None, "since": bench.clock.now, "ended": bench.clock.now,
    }  # fmt: skip
    assert drive.live == {"after"}
    drive.do("after")
    assert drive.ledger() == []
    drive.ended_well()


@pytest.mark.parametrize(
    "idle", [step("a", for_each=()), step("a", for_each="${b}"), loop("a", step("b"), turns=0)]
)
def test_loop_that_could_spin_without_a_worker_is_refused(idle: Step | Loop):
    with pytest.raises(ValueError, match="loop 'l' may repeat without any step for a worker"):
        program(loop("l", idle, turns=10_000))


def test_nothing_starts_beside_a_loop_that_fails_at_once(bench: Bench):
    drive = bench.start(
        program(
            loop("none", step("a"), turns=0, needs=()),
            step("beside", needs=()),
            loop("passed", step("a"), turns=0, needs=(), on_fail="continue"),
        )
    )
    assert drive.events().count(("session.ended", "")) == 1
    drive.ended_well("failed")


def test_nested_loops_keep_their_iterations_apart(bench: Bench):
    inner = loop("inner", step("ask"), step("again", "break"), turns=2, on_fail="continue")
    drive = bench.start(program(loop("outer", inner, step("enough", "break"), turns=2)))
    for outer in (1, 2):
        for i in (1, 2):
            block = f"outer~1[{outer}]/inner~1[{i}]"
            assert drive.live == {f"{block}/ask"}
            drive.do(f"{block}/ask")
            drive.do(f"{block}/again")
        drive.do(f"outer~1[{outer}]/enough")
    assert drive.ledger() == [
        ("outer/inner", 1, 1, "retry"),
        ("outer/inner", 1, 2, "retry"),
        ("outer", 1, 1, "retry"),
        ("outer/inner", 1, 1, "retry"),
        ("outer/inner", 1, 2, "retry"),
        ("outer", 1, 2, "retry"),
    ]
    assert drive.reason["code"] == "max_iterations"
    drive.ended_well("failed")


def test_break_ends_the_loop_around_it_and_no_other(bench: Bench):
    inner = loop("inner", step("ask"), step("stop", "break"))
    drive = bench.start(program(loop("outer", inner, step("done", "break"))))
    drive.do("outer~1[1]/inner~1[1]/ask")
    drive.do("outer~1[1]/inner~1[1]/stop", verdict="accept")
    assert drive.turn("outer~1[1]/inner~1")["reason"]["code"] == "break"
    assert drive.live == {"outer~1[1]/done"}
    drive.do("outer~1[1]/done", verdict="accept")
    drive.ended_well()


def test_break_cancels_what_waits_beside_it_and_waits_for_what_runs(bench: Bench):
    body = (
        step("stop", "break", needs=()),
        step("runs", needs=()),
        step("waits", needs=()),
        step("follows", needs=("runs",)),
        loop("inner", step("deep"), needs=()),
    )
    drive = bench.start(program(loop("l", *body), step("after")))
    running = drive.take("l~1[1]/runs")
    drive.do("l~1[1]/stop", verdict="accept")
    assert drive.state("l~1[1]/waits") == drive.state("l~1[1]/inner~1[1]/deep") == "cancelled"
    assert drive.turn("l~1")["state"] == "closing"
    assert drive.turn("l~1[1]/inner~1")["state"] == "closed"
    assert drive.live == {"l~1[1]/runs"}
    assert drive.beat(running).word == "cancel"
    assert [hint.address for hint in drive.settle(running).hints] == ["after"]
    assert drive.state("l~1[1]/runs") == "succeeded"
    assert drive.state("l~1[1]/follows") == "pending"
    drive.do("after")
    assert drive.ledger() == [("l/inner", 1, 1, "cancelled"), ("l", 1, 1, "accept")]
    drive.ended_well()


@pytest.mark.parametrize("how", ["release", "lost", "timeout", "failed"])
def test_closing_loop_closes_however_its_last_step_leaves(bench: Bench, how: str):
    body = (step("stop", "break", needs=()), step("runs", needs=(), retries=3))
    drive = bench.start(program(loop("l", *body), step("after")))
    running = drive.take("l~1[1]/runs")
    drive.do("l~1[1]/stop", verdict="accept")
    match how:
        case "release":
            hints = drive.release(running).hints
        case "lost":
            bench.tick(31)
            hints = drive.expire("l~1[1]/runs").hints
        case "timeout":
            bench.tick(60)
            drive.beat(running)
            bench.tick(10)
            hints = drive.expire("l~1[1]/runs").hints
        case _:
            hints = drive.settle(running, "failed").hints
    assert [hint.address for hint in hints] == ["after"]
    assert drive.state("l~1[1]/runs") == ("cancelled" if how in ("release", "lost") else "failed")
    drive.do("after")
    drive.ended_well()


def test_park_in_a_closing_loop_hands_the_step_back_and_goes_on(bench: Bench):
    body = (step("stop", "break", needs=()), step("runs", "human", needs=()))
    drive = bench.start(program(loop("l", *body), step("after")))
    running = drive.take("l~1[1]/runs")
    drive.do("l~1[1]/stop", verdict="accept")
    answer = drive.park(running)
    assert answer.word == "superseded"
    assert drive.state("l~1[1]/runs") == "cancelled"
    assert [hint.address for hint in answer.hints] == ["after"]
    drive.do("after")
    drive.ended_well()


def test_parallel_branches_are_joined_with_a_loop_between_them(bench: Bench):
    drive = bench.start(
        program(
            step("plan"),
            step("left", needs=("plan",)),
            loop("right", *ITERATION, needs=("plan",)),
            step("both", needs=("left", "right")),
        )
    )
    drive.do("plan")
    assert drive.live == {"left", "right~1[1]/do"}
    iterate(drive, "right~1", "retry")
    iterate(drive, "right~1", "accept", 2)
    assert drive.live == {"left"}
    assert [hint.address for hint in drive.do("left").hints] == ["both"]
    drive.do("both")
    drive.ended_well()


def test_what_was_passed_over_in_a_loop_says_where_and_why(bench: Bench):
    bad = step("bad", label="Try", critical=False)
    inner = loop("l", bad, step("stop", "break"), turns=2)
    drive = bench.start(program(inner))
    for i, why in ((1, "exit code 3"), (2, "")):
        drive.do(f"l~1[{i}]/bad", "failed", failure=why or None)
        drive.do(f"l~1[{i}]/stop")
    assert drive.warnings() == [
        "Try (l~1[1]/bad) failed and was passed over: exit code 3",
        "Try (l~1[2]/bad) failed and was passed over",
    ]
    assert drive.turn("l~1")["reason"]["text"] == "l: no break came within 2 iterations"
    drive.ended_well("failed")


def test_tenth_iteration_is_not_the_first(bench: Bench):
    body = (step("a", needs=()), step("b", needs=()), step("stop", "break", needs=("a", "b")))
    drive = bench.start(program(loop("l", *body, turns=12)))
    for i in range(1, 12):
        drive.do(f"l~1[{i}]/a")
        assert drive.do(f"l~1[{i}]/b").hints != ()
        drive.do(f"l~1[{i}]/stop", verdict="accept" if i == 11 else None)
    assert len(drive.ledger()) == 11
    drive.ended_well()


def judge_says(drive: Drive, iteration: int, signature: str | None) -> None:
    drive.do(
        f"l~1[{iteration}]/j", "succeeded", "retry", ledger="l~1", signature=signature,
        refused_by="lint",
    )  # fmt: skip


def test_a_loop_in_which_nothing_moves_ends_one_turn_after_it_could_be_told(bench: Bench) -> None:
    still = loop("l", step("j", "judge"), turns=20).model_copy(update={"no_progress": 2})
    drive = bench.start(program(still))
    for iteration, signature in enumerate(("a", "a", "b", "b", None, "b", "b", "b"), 1):
        assert drive.status == "active", iteration
        judge_says(drive, iteration, signature)
    drive.ended_well("failed")
    assert drive.turn("l~1")["reason"]["code"] == "no_progress"
    assert len(drive.ledger()) == 8
