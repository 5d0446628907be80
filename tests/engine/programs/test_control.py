"""Stop, exit and abort."""

from __future__ import annotations

import pytest

from tests.engine.driving import (
    Bench,
    loop,
    program,
    step,
)
from tests.engine.programs.iterations import ITERATION


def test_stopped_session_starts_nothing_and_goes_on_where_it_was(bench: Bench):
    drive = bench.start(program(step("a", needs=()), step("b", needs=()), step("c", needs=("a",))))
    running = drive.take("a")
    assert drive.control("stop").status == "stopping"
    assert drive.claim("b").why == "session stopping"
    assert drive.beat(running).word == "stop"
    assert drive.settle(running, take=["n"]).grants == ()
    assert drive.status == "stopped"
    assert drive.live == {"b", "c"}
    assert bench.scores("ready") == {}
    bench.tick(1000)
    assert drive.sweep() == []
    answer = drive.control("resume")
    assert sorted(hint.address for hint in answer.hints) == ["b", "c"]
    drive.do("b")
    drive.do("c")
    drive.ended_well()


def test_stop_takes_back_what_is_released_or_lost(bench: Bench):
    drive = bench.start(program(step("a", needs=()), step("b", needs=())))
    a, _ = drive.take("a"), drive.take("b")
    drive.control("stop")
    drive.release(a, "stop")
    assert drive.status == "stopping"
    bench.tick(31)
    assert drive.sweep() == ["lost"]
    assert drive.status == "stopped"
    assert drive.ready() == ["a", "b"]


def test_retry_that_was_due_while_stopped_keeps_its_time(bench: Bench):
    drive = bench.start(program(step("a", retries=1)))
    drive.do("a", "failed")
    drive.control("stop")
    bench.tick(0.5)
    drive.control("resume")
    assert drive.claim("a").why == "early"
    assert list(bench.scores("ready").values()) == [bench.clock.now + 500]


def test_answer_to_a_stopped_session_settles_and_releases_nothing(bench: Bench):
    drive = bench.start(program(step("ask", "human"), step("after")))
    parked = drive.park(drive.take("ask"))
    drive.control("stop")
    assert drive.answer("ask", parked.fence).hints == ()
    assert drive.status == "stopped"
    assert [hint.address for hint in drive.control("resume").hints] == ["after"]
    drive.do("after")
    drive.ended_well()


def test_stopping_session_that_finishes_is_finished(bench: Bench):
    drive = bench.start(program(step("a")))
    running = drive.take("a")
    drive.control("stop")
    assert drive.settle(running).ended == "completed"
    drive.ended_well()


def test_exit_waits_for_the_step_that_called_it(bench: Bench):
    drive = bench.start(program(step("a", needs=()), step("b", needs=()), step("c", needs=("a",))))
    running = drive.take("a")
    drive.control("exit", by="a", fence=running.fence, reason={"code": "exit", "text": "enough"})
    assert drive.status == "exiting"
    assert drive.state("b") == "cancelled"
    assert drive.beat(running).word == "ok"
    bench.tick(10)
    assert drive.beat(running).word == "cancel"
    assert drive.settle(running).ended == "exited"
    assert drive.reason["text"] == "enough"
    assert drive.state("c") == "pending"
    drive.ended_well("exited")


def test_exit_by_a_step_that_is_not_held_is_refused(bench: Bench):
    drive = bench.start(program(step("a")))
    grant = drive.take("a")
    drive.release(grant)
    assert drive.control("exit", by="a", fence=grant.fence).status == "superseded"
    drive.take("a")
    assert drive.control("exit", by="a", fence=grant.fence).status == "superseded"
    assert drive.status == "active"


def test_exit_ends_the_loops_around_it_with_exit(bench: Bench):
    drive = bench.start(program(loop("l", loop("m", *ITERATION))))
    assert drive.control("exit", reason={"code": "exit"}).ended == "exited"
    assert [entry[3] for entry in drive.ledger()] == ["exit", "exit"]
    assert drive.turn("l~1[1]/m~1")["verdict"] == "exit"
    drive.ended_well("exited")


def test_exit_of_a_session_that_is_failing_ends_it_exited(bench: Bench):
    drive = bench.start(program(step("a", needs=()), step("b", needs=())))
    running = drive.take("b")
    drive.do("a", "failed")
    drive.control("exit", by="b", fence=running.fence)
    assert drive.settle(running).ended == "exited"
    drive.ended_well("exited")


@pytest.mark.parametrize(
    "before", ["active", "stopping", "stopped", "exiting", "failed", "failing"]
)
def test_abort_ends_a_session_from_wherever_it_is(bench: Bench, before: str):
    drive = bench.start(program(step("a", needs=()), step("b", needs=()), step("h", needs=())))
    running = None if before in ("stopped", "failed") else drive.take("a")
    if before in ("failed", "failing"):
        drive.do("b", "failed")
    if before in ("stopping", "stopped"):
        drive.control("stop")
    if before == "exiting":
        drive.control("exit")
    assert drive.status == ("active" if before == "failing" else before)
    answer = drive.control("abort", reason={"code": "aborted"})
    if running is not None:
        assert answer.ended is None
        assert drive.beat(running).word == "cancel"
        answer = drive.release(running, "cancel")
    assert answer.ended == "aborted"
    assert drive.reason["code"] == "aborted"
    drive.ended_well("aborted")


def test_aborted_session_ends_when_its_last_lease_passes(bench: Bench):
    drive = bench.start(program(step("a", retries=2)))
    zombie = drive.take("a")
    drive.control("abort")
    bench.tick(31)
    assert drive.sweep() == ["cancelled"]
    assert drive.settle(zombie).word == "superseded"
    drive.ended_well("aborted")


@pytest.mark.parametrize("verb", ["stop", "resume", "exit", "abort"])
def test_final_sessions_cannot_be_steered(bench: Bench, verb: str):
    drive = bench.start(program(step("a")))
    drive.do("a")
    answer = drive.control(verb)
    assert (answer.word, answer.status) == ("refused", "completed")
    drive.ended_well()


def test_control_whose_reply_was_lost_is_done_not_refused(bench: Bench):
    drive = bench.start(program(step("a")))
    drive.take("a")
    assert drive.control("abort", nonce="n").word == "done"
    again = drive.control("abort", nonce="n")
    assert (again.word, again.status) == ("done", "aborting")
    assert drive.control("abort", nonce="m").word == "refused"
    assert drive.events().count(("session.status", "")) == 1


def test_a_stop_that_is_repeated_late_does_not_undo_a_resume(bench: Bench):
    drive = bench.start(program(step("a")))
    assert drive.control("stop", nonce="mine").word == "done"
    assert drive.control("resume", nonce="another's").word == "done"
    assert drive.control("stop", nonce="mine").word == "done"  # its reply was lost
    assert drive.status == "active"


def test_a_session_that_is_to_stop_stops_though_its_last_step_used_its_budget_up(bench: Bench):
    drive = bench.start(program(step("a"), step("b")), budget={"steps": 1})
    grant = drive.take("a")
    drive.control("stop")
    drive.settle(grant)
    assert drive.status == "stopped"
    assert drive.ready() == ["b"]
