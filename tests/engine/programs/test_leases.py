"""Leases, deadlines and the sweep."""

from __future__ import annotations

from tests.engine.driving import (
    LEASE_MS,
    Bench,
    program,
    step,
)


def test_who_lost_a_step_can_neither_keep_it_nor_hand_it_back_nor_settle_it(bench: Bench):
    drive = bench.start(program(step("a"), step("b")))
    first = drive.take("a")
    bench.tick(LEASE_MS / 1000 + 1)
    assert drive.sweep() == ["lost"]
    second = drive.take("a")
    assert drive.beat(first).word == "lost"
    assert drive.release(first).word == "superseded"
    assert drive.settle(first).word == "superseded"
    assert drive.state("a") == "running"
    assert drive.settle(second).word == "settled"


def test_a_lease_of_who_is_gone_is_not_waited_for(bench: Bench):
    drive = bench.start(program(step("a"), step("b")))
    drive.take("a")
    assert drive.run("expire", {"address": "a", "gone": "another"}).word == "alive"
    assert drive.run("expire", {"address": "a", "gone": "w"}).word == "lost"
    assert (drive.state("a"), drive.field("attempts_lost")) == ("ready", "1")
    assert drive.run("expire", {"address": "a", "gone": "w"}).word == "gone"
    drive.do("a")


def test_lost_worker_hands_its_step_to_the_next(bench: Bench):
    drive = bench.start(program(step("a"), step("b")))
    first = drive.take("a")
    bench.tick(29)
    assert drive.beat(first).word == "ok"
    bench.tick(29)
    assert drive.sweep() == []
    bench.tick(2)
    assert drive.sweep() == ["lost"]
    assert drive.beat(first).word == "lost"
    second = drive.take("a")
    assert (second.fence, second.lost, second.failed) == (2, 1, 0)
    assert drive.settle(first).word == "superseded"
    assert drive.state("a") == "running"
    assert drive.settle(second).word == "settled"
    assert drive.settle(first).word == "superseded"
    drive.do("b")
    assert drive.counters()["attempts_lost"] == 1
    assert drive.counters()["steps"] == 2
    drive.ended_well()


def test_step_that_kills_its_workers_is_poison(bench: Bench):
    drive = bench.start(program(step("a", retries=3, timeout_s=1000)))
    for lost in range(1, 7):
        drive.take("a")
        bench.tick(31)
        assert drive.expire("a").word == ("lost" if lost < 6 else "poison")
    assert drive.reason["code"] == "lost"
    assert drive.counters()["attempts_lost"] == 6
    assert drive.counters()["attempts_failed"] == 0
    drive.ended_well("failed")


def test_beats_do_not_extend_the_deadline(bench: Bench):
    drive = bench.start(program(step("a", timeout_s=60, retries=1)))
    grant = drive.take("a")
    for _ in range(3):
        bench.tick(23)
        assert drive.beat(grant).word == "ok"
    assert drive.beat(grant).lease == grant.deadline + 10_000
    bench.tick(1)
    assert drive.sweep() == ["timeout"]
    assert drive.beat(grant).word == "lost"
    assert drive.settle(grant).word == "superseded"
    assert drive.counters()["attempts_failed"] == 1
    assert drive.counters()["attempts_lost"] == 0
    bench.tick(1)
    again = drive.take("a")
    bench.tick(60)
    drive.beat(again)
    bench.tick(10)
    assert drive.sweep() == ["timeout"]
    assert drive.reason["code"] == "timeout"
    drive.ended_well("failed")


def test_whoever_is_found_late_was_lost_and_did_not_take_too_long(bench: Bench):
    """Nobody was there to look for longer than the step may take."""
    drive = bench.start(program(step("a", timeout_s=60)))
    grant = drive.take("a")
    bench.tick(25)
    drive.beat(grant)
    bench.tick(8 * 3600)
    assert drive.sweep() == ["lost"]
    drive.take("a")
    bench.tick(8 * 3600)
    assert drive.run("expire", {"address": "a", "gone": "w"}).word == "lost"
    assert drive.counters()["attempts_lost"] == 2
    assert drive.counters()["attempts_failed"] == 0
    drive.do("a")
    drive.ended_well()


def test_lease_is_never_longer_than_the_deadline(bench: Bench):
    drive = bench.start(program(step("a", timeout_s=5)))
    grant = drive.take("a")
    assert grant.lease == grant.deadline + 10_000 == bench.clock.now + 15_000


def test_restarted_server_gives_leases_one_period_of_grace(bench: Bench):
    drive = bench.start(program(step("a", retries=1)))
    drive.take("a")
    assert bench.due(run_id="one").word == "due"
    bench.tick(31)
    assert bench.due(run_id="two").leases == ()
    bench.tick(LEASE_MS / 1000 - 0.001)
    assert bench.due(run_id="two").leases == ()
    bench.tick(0.001)
    assert len(bench.due(run_id="two").leases) == 1


def test_a_timer_waits_for_no_grace_after_a_restart(bench: Bench):
    drive = bench.start(program(*(step(name, needs=()) for name in "abcd")))
    drive.take("a")
    for name, on in (("b", "wait"), ("c", "human"), ("d", "child")):
        drive.park(drive.take(name), on, wait_s=31)
    assert bench.due(run_id="one").leases == ()
    bench.tick(31)
    assert bench.due(run_id="two").leases == (drive.ref.member + "b",)
    assert drive.expire("b").word == "woken"
    bench.tick(LEASE_MS / 1000)
    assert len(bench.due(run_id="two").leases) == 3


def test_only_one_sweeper_looks_at_a_time(bench: Bench):
    bench.start(program(step("a")))
    assert bench.store.due(every_ms=900, limit=10, grace_ms=1).word == "due"
    assert bench.store.due(every_ms=900, limit=10, grace_ms=1).word == "recent"
    bench.tick(0.9)
    assert bench.store.due(every_ms=900, limit=10, grace_ms=1).word == "due"


def test_a_clock_that_steps_back_keeps_nobody_from_looking(bench: Bench):
    bench.start(program(step("a")))
    bench.tick(3600)
    assert bench.store.due(every_ms=900, limit=10, grace_ms=1).word == "due"
    bench.tick(-3600)
    assert bench.store.due(every_ms=900, limit=10, grace_ms=1).word == "due"
    assert bench.store.due(every_ms=900, limit=10, grace_ms=1).word == "recent"


def test_lost_hint_is_sent_again_ever_more_slowly(bench: Bench):
    drive = bench.start(program(step("a")))
    for wait_s in (3, 6, 12, 24, 48, 48):
        bench.tick(wait_s - 0.001)
        assert drive.sweep() == []
        bench.tick(0.001)
        assert drive.sweep() == ["hinted"]
    grant = drive.take("a")
    drive.release(grant)
    bench.tick(3)
    assert drive.sweep() == ["hinted"]


def test_hint_is_not_repeated_into_a_long_queue(bench: Bench):
    drive = bench.start(program(step("a")))
    bench.tick(3)
    assert drive.sweep(depth=100) == ["busy"]
    bench.tick(300)
    assert drive.sweep(depth=100) == ["hinted"]
