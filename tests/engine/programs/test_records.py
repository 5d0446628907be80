"""How long the records of a session are kept, and their deletion."""

from __future__ import annotations

from tests.engine.driving import (
    Bench,
    assert_told_once,
    program,
    step,
)

#: What outlives a session: statistics, and the last changes of all sessions.
KEPT = {"lh:stats:0", "lh:changes"}


def test_answer_to_a_stopped_session_is_kept_no_longer_than_the_rest(bench: Bench):
    drive = bench.start(program(step("ask", "human"), step("then")))
    fence = drive.park(drive.take("ask")).fence
    drive.control("stop")
    drive.run("answer", {"address": "ask", "fence": fence, "word": "succeeded", "by": "me"},
              outcome='{"word": "succeeded"}')  # fmt: skip
    keys = bench.redis.keys(bench.store.keys.base(drive.ref) + "*")
    assert bench.store.keys.part(drive.ref, "out") in keys
    assert all(bench.redis.ttl(key) > 0 for key in keys)


def test_drained_worker_leaves_its_steps_to_others(bench: Bench):
    drive = bench.start(program(step("w", for_each=(1, 2, 3))))
    grants = [drive.take(f"w~1#{item}") for item in (1, 2, 3)]
    hints = [hint.address for grant in grants for hint in drive.release(grant).hints]
    assert hints == ["w~1#1", "w~1#2", "w~1#3"]
    for address in hints:
        drive.do(address)
    drive.ended_well()


def test_delete_frees_everything(bench: Bench):
    drive = bench.start(program(step("a")), key="k")
    other = bench.start(drive.program, name="bbbbbbbb")
    assert drive.delete().word == "refused"
    drive.do("a")
    assert drive.delete().word == "deleted"
    assert drive.delete().word == "unknown"
    assert bench.store.program(drive.program.hash) is not None
    other.do("a")
    other.delete()
    left = {str(key) for key in bench.redis.keys("*")}
    assert left == {*KEPT}


def test_key_that_another_session_has_taken_over_stays(bench: Bench):
    drive = bench.start(program(step("a")), key="k")
    bench.redis.delete("lh:idem:k")  # as after seven days
    other = bench.start(drive.program, name="bbbbbbbb", key="k")
    drive.do("a")
    assert drive.delete().word == "deleted"
    assert bench.redis.exists("lh:idem:k")
    other.do("a")
    other.delete()
    assert not bench.redis.exists("lh:idem:k")


def test_delete_of_a_stopped_session_leaves_no_timer_behind(bench: Bench):
    drive = bench.start(program(step("ask", "human", needs=()), step("b", needs=())))
    drive.park(drive.take("ask"))
    drive.control("stop")
    assert drive.delete().word == "deleted"
    assert set(bench.redis.keys("*")) <= KEPT


def test_resumed_session_is_kept_until_it_ends_again(bench: Bench):
    drive = bench.start(program(step("a")))
    drive.do("a", "failed")
    assert "forget|aaaaaaaa|aaaaaaaa|" in bench.scores("errands")
    drive.control("resume")
    assert bench.scores("errands") == {}
    assert all(bench.redis.ttl(key) == -1 for key in bench.redis.keys("lh:{*"))
    drive.do("a~2")
    drive.ended_well()


def test_settled_step_never_opens_again(bench: Bench):
    drive = bench.start(program(step("a"), step("b")))
    old = drive.take("a")
    drive.settle(old)
    for word in ("succeeded", "failed", "skipped"):
        assert drive.settle(old, word).word == "repeated"
    assert drive.release(old).word == "superseded"
    assert drive.expire("a").word == "gone"
    assert drive.rehint("a").word == "gone"
    assert drive.state("a") == "succeeded"
    assert_told_once(drive)
