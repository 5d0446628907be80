"""Calls that are repeated, and keys that make a submit idempotent."""

from __future__ import annotations

from app.core.addresses import SessionRef
from tests.engine.driving import (
    Bench,
    Drive,
    program,
    step,
)
from tests.waiting import wait_until


def test_nothing_that_is_said_twice_counts_twice(bench: Bench):
    drive = bench.start(program(step("a"), step("j", quick=True), step("b")), key="k")
    assert drive.create(key="k").word == "exists"
    first = drive.claim("a", nonce="n")
    assert drive.claim("a", nonce="n").grants == first.grants
    settled = drive.settle(first.grants[0], take=["m"])
    again = drive.settle(first.grants[0], take=["m"])
    assert (again.word, again.grants) == ("repeated", settled.grants)
    assert drive.claim("a", nonce="n").word == "superseded"
    drive.settle(settled.grants[0])
    assert drive.settle(first.grants[0], take=["m"]).grants == ()
    drive.do("b")
    assert drive.counters()["steps"] == 3
    drive.ended_well()


def test_replay_does_not_hand_out_a_claim_that_was_lost_since(bench: Bench):
    drive = bench.start(program(step("a"), step("j", quick=True)))
    first = drive.take("a")
    assert [grant.address for grant in drive.settle(first, take=["m"]).grants] == ["j"]
    bench.tick(31)
    drive.sweep()
    drive.take("j")
    assert drive.settle(first, take=["m"]).grants == ()


def test_key_has_a_deadline_and_makes_a_new_session_after_it(bench: Bench):
    bench.start(program(step("one")), key="k")
    assert 0 < bench.redis.ttl("lh:idem:k") <= 7 * 24 * 3600
    bench.redis.pexpire("lh:idem:k", 1)
    wait_until(lambda: not bench.redis.exists("lh:idem:k"))
    later = Drive(bench, SessionRef("bbbbbbbb", "bbbbbbbb"), program(step("one")))
    assert later.create(key="k").word == "created"


def test_key_of_another_body_is_refused(bench: Bench):
    drive = bench.start(program(step("a")), key="k")
    assert drive.create(key="k", body="other").word == "conflict"
    assert drive.create(nonce="another").word == "taken"


def test_create_whose_reply_was_lost_finds_its_own_session(bench: Bench):
    drive = bench.start(program(step("a")))
    assert drive.create().word == "created"
    assert drive.events().count(("session.created", "")) == 1


def test_claim_is_refused_to_all_but_one(bench: Bench):
    drive = bench.start(program(step("a"), step("b")))
    assert drive.claim("b").why == "unknown"
    assert drive.claim("a", schema=0).why == "schema"
    grant = drive.take("a")
    assert drive.claim("a").why == "running"
    drive.settle(grant)
    assert drive.claim("a").why == "succeeded"


def test_late_claim_of_a_lease_that_passed_is_superseded(bench: Bench):
    drive = bench.start(program(step("a")))
    assert drive.claim("a", nonce="n").word == "granted"
    bench.tick(30)
    assert drive.claim("a", nonce="n").word == "superseded"


def test_released_attempt_is_not_counted(bench: Bench):
    drive = bench.start(program(step("a")))
    grant = drive.take("a")
    assert drive.release(grant).word == "released"
    assert drive.release(grant).word == "superseded"
    assert drive.settle(grant).word == "superseded"
    again = drive.take("a")
    assert (again.attempt, again.fence) == (1, 2)
    assert drive.counters() == {
        "steps": 0, "iterations": 0, "attempts_failed": 0, "attempts_lost": 0, "phase_retries": 0,
    }  # fmt: skip
