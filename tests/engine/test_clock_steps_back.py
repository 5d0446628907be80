"""The server's clock steps back: nothing waits longer than it would have, begun at that moment."""

from __future__ import annotations

from app.core.outcomes import Outcome
from tests.engine.children.test_children import family
from tests.engine.driving import LEASE_MS, Bench, Drive, program, step
from tests.engine.test_fsck import audit
from tests.engine.world import World

#: The clock of a bench starts at 1,000 s.
BACK_S = 900
DO = "loop~1[1]/do"


def stepped_back(bench: Bench, drive: Drive, *, seconds: float = BACK_S) -> None:
    """Somebody swept just before the clock stepped back, and does again as soon as it has."""
    drive.sweep()
    bench.tick(-seconds)
    bench.due()


def test_a_dead_workers_step_runs_again_a_lease_after_the_clock_stepped_back(bench: Bench) -> None:
    drive = bench.start(program(step("a")))
    drive.take("a")
    stepped_back(bench, drive)
    bench.tick(LEASE_MS / 1000)
    assert drive.sweep() == ["lost"]
    assert drive.state("a") == "ready"


def test_a_worker_that_lives_keeps_its_step_when_the_clock_steps_back(bench: Bench) -> None:
    drive = bench.start(program(step("a")))
    grant = drive.take("a")
    stepped_back(bench, drive)
    for _ in range(6):
        bench.tick(10)
        assert drive.sweep() == []
        assert drive.beat(grant).word == "ok"
    assert drive.settle(grant).word == "settled"
    drive.ended_well()


def test_what_was_claimed_after_the_clock_stepped_back_is_left_alone(bench: Bench) -> None:
    drive = bench.start(program(step("a")))
    drive.sweep()
    bench.tick(-BACK_S)
    drive.take("a")
    before = drive.records("steps")["a"]
    bench.tick(0.5)
    bench.due()
    assert drive.records("steps")["a"] == before


def test_an_attempt_takes_no_longer_because_the_clock_stepped_back(bench: Bench) -> None:
    drive = bench.start(program(step("a", timeout_s=60)))
    grant = drive.take("a")
    stepped_back(bench, drive)
    for _ in range(6):
        bench.tick(10)
        drive.beat(grant)
    bench.tick(10)
    assert drive.sweep() == ["timeout"]


def test_a_lost_hint_is_sent_again_though_the_clock_stepped_back(bench: Bench) -> None:
    drive = bench.start(program(step("a")))
    stepped_back(bench, drive)
    bench.tick(LEASE_MS / 1000)
    assert drive.sweep() == ["hinted"]


def test_a_retry_comes_in_time_though_the_clock_stepped_back(bench: Bench) -> None:
    drive = bench.start(program(step("a", retries=1)))
    drive.do("a", "failed")
    stepped_back(bench, drive)
    assert drive.claim("a").why == "early"
    bench.tick(3)
    assert drive.sweep() == ["hinted"]
    assert drive.claim("a").word == "granted"


def test_a_wait_is_no_longer_because_the_clock_stepped_back(bench: Bench) -> None:
    drive = bench.start(program(step("a", "wait")))
    drive.park(drive.take("a"), "wait", wait_s=60)
    bench.tick(40)
    stepped_back(bench, drive)
    bench.tick(59)
    assert drive.sweep() == []
    bench.tick(1)
    assert drive.sweep() == ["woken"]


def test_a_wait_is_over_when_it_would_have_been_where_the_clock_steps_back_a_little(
    bench: Bench,
) -> None:
    drive = bench.start(program(step("a", "wait")))
    drive.park(drive.take("a"), "wait", wait_s=60)
    bench.tick(40)
    stepped_back(bench, drive, seconds=5)
    bench.tick(25)
    assert drive.sweep() == ["woken"]


def test_a_sessions_time_is_no_longer_because_the_clock_stepped_back(bench: Bench) -> None:
    drive = bench.start(program(step("a")), budget={"wall_ms": 100_000})
    bench.tick(50)
    stepped_back(bench, drive)
    bench.tick(100)
    assert "spent" in drive.sweep()
    assert (drive.status, drive.reason["code"]) == ("failed", "budget")


def test_the_grace_of_a_restart_ends_though_the_clock_stepped_back(bench: Bench) -> None:
    drive = bench.start(program(step("a")))
    drive.take("a")
    bench.due(run_id="one")
    bench.due(run_id="another")
    bench.tick(-BACK_S)
    bench.due(run_id="another")
    bench.tick(LEASE_MS / 1000)
    assert len(bench.due(run_id="another").leases) == 1


def test_who_called_exit_has_no_more_than_its_moment_when_the_clock_steps_back(
    bench: Bench,
) -> None:
    drive = bench.start(program(step("a")))
    grant = drive.take("a")
    drive.control("exit", by="a", fence=grant.fence)
    stepped_back(bench, drive)
    assert drive.beat(grant).word == "cancel"


def test_who_was_called_for_a_lock_keeps_it_no_longer_when_the_clock_steps_back(
    bench: Bench,
) -> None:
    world = World.of(bench)
    first, second, third = (world.session("/same") for _ in range(3))
    grant = world.grant(first, DO)
    for ref in (second, third):
        assert world.claim(ref, DO).why == "lock"
    world.engine.control.apply(first.id, "abort")
    world.engine.attempts.release(first, grant, why="cancel")
    world.later(1_000)
    world.later(-BACK_S * 1000)  # the second one has been called, and never comes
    world.later(6_000)
    assert world.claim(third, DO).word == "granted"


def test_what_one_session_owes_another_is_done_though_the_clock_stepped_back(bench: Bench) -> None:
    world = World.of(bench)
    parent, child = family(world)
    world.later(0)
    errand = world.engine.transitions.deliver
    world.engine.transitions.deliver = lambda _: None
    world.settle(child, world.grant(child, DO), Outcome(word="failed", retryable=False))
    world.engine.transitions.deliver = errand
    world.later(-BACK_S * 1000)
    world.later(60_000)
    assert world.engine.queries.session(parent.id).status == "failed"


def test_a_child_is_looked_at_again_though_the_clock_stepped_back(bench: Bench) -> None:
    world = World.of(bench)
    parent, child = family(world)
    world.later(50_000)
    world.engine.store._redis.delete(world.engine.store.keys.part(child, "session"))
    world.later(-BACK_S * 1000)
    world.later(60_000)
    assert world.engine.queries.session(parent.id).status == "failed"


def test_a_webhook_is_tried_again_though_the_clock_stepped_back(bench: Bench) -> None:
    world = World.of(bench)
    ref = world.session()
    hooks = world.engine.store.keys.everywhere("hooks")
    bench.redis.zadd(hooks, {f"{ref.member}x": world.now + 1_000, "later": 1})
    world.later(1)
    world.later(-BACK_S * 1000)
    assert bench.redis.zscore(hooks, f"{ref.member}x") == world.now + 60_000
    assert bench.redis.zscore(hooks, "later") == 1


def test_a_session_is_forgotten_no_sooner_than_it_was_to_be(bench: Bench) -> None:
    world = World.of(bench)
    ref = world.session()
    world.engine.control.apply(ref.id, "abort")
    errands = world.engine.store.keys.everywhere("errands")
    before = bench.redis.zrange(errands, 0, -1, withscores=True)
    world.later(0)
    world.later(-BACK_S * 1000)
    assert bench.redis.zrange(errands, 0, -1, withscores=True) == before
    assert audit(world.engine.audit.run).items == []
