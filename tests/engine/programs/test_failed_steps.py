"""Steps that fail or are busy, and their next attempts."""

from __future__ import annotations

from tests.engine.driving import (
    LEASE_MS,
    Bench,
    loop,
    program,
    step,
)
from tests.engine.programs.iterations import ITERATION


def test_critical_failure_ends_the_session_and_cancels_the_rest(bench: Bench):
    drive = bench.start(program(step("a", needs=()), step("b", needs=()), step("c", needs=("a",))))
    running = drive.take("b")
    drive.do("a", "failed")
    assert drive.status == "active"
    assert drive.claim("b").why == "running"
    assert drive.settle(running).ended == "failed"
    assert drive.state("c") == "pending"
    assert drive.reason["at"] == "a"
    drive.ended_well("failed")


def test_failure_that_is_not_critical_is_passed_over(bench: Bench):
    drive = bench.start(program(step("a", critical=False), step("b")))
    assert [hint.address for hint in drive.do("a", "failed").hints] == ["b"]
    drive.do("b")
    drive.ended_well()


def test_check_that_fails_arrives_all_the_same(bench: Bench):
    drive = bench.start(program(loop("l", *ITERATION)))
    drive.do("l~1[1]/do")
    drive.do("l~1[1]/check.a", "failed")
    assert [h.address for h in drive.do("l~1[1]/check.b").hints] == ["l~1[1]/judge"]
    assert drive.warnings() == []


def test_skipped_step_arrives_all_the_same(bench: Bench):
    drive = bench.start(program(step("a", when="${x}"), step("b")))
    assert [hint.address for hint in drive.do("a", "skipped").hints] == ["b"]
    drive.do("b")
    drive.ended_well()


def test_doer_that_says_no_way_ends_its_loop(bench: Bench):
    drive = bench.start(program(loop("l", *ITERATION)))
    assert drive.do("l~1[1]/do", verdict="terminate").ended == "failed"
    assert drive.ledger() == [("l", 1, 1, "terminate")]
    drive.ended_well("failed")


def test_failed_attempt_is_tried_again_when_its_time_has_come(bench: Bench):
    drive = bench.start(program(step("a", retries=3), step("b")))
    for wait_s in (1, 2, 3):
        assert drive.do("a", "failed").word == "again"
        assert bench.scores("ready") == {"aaaaaaaa|aaaaaaaa|a": bench.clock.now + wait_s * 1000}
        bench.tick(wait_s - 0.001)
        assert drive.claim("a").why == "early"
        assert drive.sweep() == []
        bench.tick(0.001)
        assert drive.sweep() == ["hinted"]
    assert drive.do("a", "failed").ended == "failed"
    assert drive.counters() == {
        "steps": 1, "iterations": 0, "attempts_failed": 4, "attempts_lost": 0, "phase_retries": 0,
    }  # fmt: skip
    drive.ended_well("failed")


def test_busy_step_comes_back_when_it_was_asked_to_and_counts_no_failed_attempt(bench: Bench):
    drive = bench.start(program(step("a"), step("b")))
    for asked, wait_s in (({"after_ms": 20_000}, 20), ({}, 2), ({}, 4)):
        assert drive.do("a", "failed", busy={"tries": 3, **asked}).word == "again"
        assert bench.scores("ready") == {"aaaaaaaa|aaaaaaaa|a": bench.clock.now + wait_s * 1000}
        assert not bench.scores("leases"), "nobody is held meanwhile"
        bench.tick(wait_s - 0.001)
        assert drive.claim("a").why == "early"
        bench.tick(0.001)
        assert drive.sweep() == ["hinted"]
    assert drive.counters()["attempts_failed"] == 0
    assert drive.do("a", "failed", busy={"tries": 3}).ended == "failed"
    assert drive.counters()["attempts_failed"] == 1
    drive.ended_well("failed")


def test_a_step_that_is_busy_for_longer_than_it_waits_has_its_attempts_still(bench: Bench):
    drive = bench.start(program(step("a", retries=2)))
    busy = {"tries": 2, "after_ms": 0}
    asked = 0
    while drive.do("a", "failed", busy=busy).word == "again":
        asked += 1
        bench.tick(60)
    assert asked + 1 == 5
    assert drive.counters()["attempts_failed"] == 3
    drive.ended_well("failed")


def test_busy_step_that_is_not_busy_any_more_goes_on(bench: Bench):
    drive = bench.start(program(step("a"), step("b")))
    drive.do("a", "failed", busy={"tries": 1, "after_ms": 0}, failure="it is busy")
    grant = drive.take("a")
    assert grant.failure is None, "that is nothing to do better"
    assert drive.settle(grant).word == "settled"
    drive.do("b")
    drive.ended_well("completed")


def test_failure_that_cannot_be_helped_is_not_tried_again(bench: Bench):
    drive = bench.start(program(step("a", retries=3)))
    assert drive.do("a", "failed", retryable=False).ended == "failed"


def test_judge_that_fails_is_not_granted_to_its_own_settler(bench: Bench):
    body = (step("do"), step("j", "judge", retries=1))
    judge = body[1].model_copy(update={"retry": body[1].retry.model_copy(update={"backoff_s": 0})})
    drive = bench.start(program(loop("l", body[0], judge)))
    drive.do("l~1[1]/do")
    first = drive.take("l~1[1]/j")
    answer = drive.settle(first, "failed", take=["next"])
    assert (answer.word, answer.grants) == ("again", ())
    assert drive.settle(first, "failed", take=["next"]).word == "repeated"
    assert drive.state("l~1[1]/j") == "ready"


def test_next_attempt_is_told_what_the_one_before_it_failed_with(bench: Bench):
    drive = bench.start(program(step("w", retries=3)))
    first = drive.take("w")
    assert first.failure is None
    drive.settle(first, "failed", failure="no such file")
    bench.tick(60)
    second = drive.take("w")
    assert second.failure == "no such file"
    assert drive.claim("w", nonce=second.nonce).grants[0].failure == "no such file"
    bench.tick(LEASE_MS / 1000 + 1)
    drive.sweep()
    lost = drive.take("w")
    assert lost.failure == "no such file"
    drive.settle(lost, "failed", reason={"code": "timeout", "text": "took too long"})
    bench.tick(60)
    assert drive.take("w").failure == "took too long"
