"""The window of hinted steps, and which step a settler is granted."""

from __future__ import annotations

from tests.engine.driving import (
    Bench,
    loop,
    program,
    step,
)


def test_due_retries_come_back_through_the_window(bench: Bench):
    drive = bench.start(program(step("w", for_each=(1, 2, 3), retries=2)), window=1)
    for item in (1, 2, 3):
        drive.do(f"w~1#{item}", "failed")
    bench.tick(1)
    drive.sweep()
    assert len(drive.members("hinted")) == 1
    assert not [w for w in drive.sweep() if w != "gone"]
    for _ in range(3):
        drive.do(drive.hinted[-1])
    drive.ended_well()


def test_step_in_line_is_not_hinted_for_having_been_so_before_a_stop(bench: Bench):
    drive = bench.start(program(step("b", needs=()), step("a", needs=())), window=1)
    assert drive.hinted == ["b"]
    drive.control("stop")
    drive.control("resume")
    assert drive.hinted == ["b", "a"]
    drive.rehint("b")
    assert drive.members("hinted") == {"tools<a"}


def test_stale_place_in_the_line_is_no_hint_before_its_time(bench: Bench):
    drive = bench.start(program(step("w", for_each=(1, 2, 3), retries=2)), window=1)
    assert drive.hinted == ["w~1#1"]
    drive.do("w~1#2", "failed")
    drive.do("w~1#1")
    assert drive.hinted == ["w~1#1", "w~1#3"]
    assert drive.members("hinted") == {"tools<w~1#3"}
    assert bench.scores("ready")["aaaaaaaa|aaaaaaaa|w~1#2"] == bench.clock.now + 1000


def test_cancelled_steps_give_their_slots_back(bench: Bench):
    wide = loop("l", step("w", for_each=(1, 2, 3), needs=()), step("stop", "break", needs=()))
    drive = bench.start(program(wide, step("other", needs=())), window=2)
    assert len(drive.members("hinted")) == 2
    drive.do("l~1[1]/stop", verdict="accept")
    assert drive.members("hinted") == {"tools<other"}


def test_queues_have_windows_of_their_own_by_place(bench: Bench):
    steps = [step(f"s{i}", needs=(), queue=q) for i, q in enumerate(["q", "q", "qq", "qq"])]
    drive = bench.start(program(*steps), window=1, place="here")
    assert drive.members("hinted") == {"q@here<s0", "qq@here<s2"}


def test_a_settler_takes_nothing_from_the_line_that_waits_for_its_time(bench: Bench):
    drive = bench.start(program(step("w", for_each=(1, 2, 3), retries=2, quick=True)), window=1)
    drive.settle(drive.take("w~1#3"), "failed")
    taken = drive.settle(drive.take("w~1#1"), take=["m", "n"]).grants
    assert "w~1#3" not in [grant.address for grant in taken]


def test_a_settler_is_not_granted_its_own_step_again_from_the_line(bench: Bench):
    body = (step("a", needs=()), step("w", needs=(), quick=True))
    drive = bench.start(program(*body), window=1)
    busy = {"tries": 1, "after_ms": 0}
    settled = drive.settle(drive.take("w"), "failed", take=["m"], busy=busy)
    assert not settled.grants
    assert drive.state("w") == "ready"


def test_a_settler_is_not_granted_what_stands_in_line_and_is_hinted(bench: Bench):
    drive = bench.start(program(step("w", for_each=(1, 2, 3), quick=True)), window=1)
    drive.release(drive.take("w~1#3"))  # it is in the line twice
    one, _ = drive.take("w~1#1"), drive.take("w~1#2")
    assert drive.members("hinted") == {"tools<w~1#3"}
    assert not drive.settle(one, take=["m"]).grants
    drive.take("w~1#3")
    assert drive.members("hinted") == set()


def test_sticky_worker_takes_quick_steps_only(bench: Bench):
    body = (
        step("do"),
        step("check", "check", quick=True),
        step("slow", needs=("do",)),
        step("j", "judge", needs=("check", "slow")),
    )
    drive = bench.start(program(loop("l", *body)))
    answer = drive.do("l~1[1]/do", take=["x", "y"])
    assert [grant.address for grant in answer.grants] == ["l~1[1]/check"]
    assert [hint.address for hint in answer.hints] == ["l~1[1]/slow"]
    assert drive.settle(answer.grants[0], take=["z"]).grants == ()
    assert drive.do("l~1[1]/slow", take=["z"]).grants[0].address == "l~1[1]/j"
