"""Parked steps: questions, timers and child sessions."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from tests.engine.driving import (
    Bench,
    program,
    step,
)


def test_answer_and_deadline_race_and_the_first_wins(bench: Bench):
    drive = bench.start(program(step("ask", "human"), step("after")))
    parked = drive.park(drive.take("ask"), wait_s=60)
    assert drive.sweep() == []
    assert drive.answer("ask", parked.fence, text="yes").word == "settled"
    late = drive.answer("ask", parked.fence, by="else")
    assert (late.word, late.by) == ("superseded", "somebody")
    bench.tick(60)
    assert drive.expire("ask").word == "gone"
    drive.do("after")
    drive.ended_well()


def test_question_that_cannot_be_written_is_not_asked_by_half(bench: Bench):
    drive = bench.start(program(step("ask", "human")))
    grant = drive.take("ask")
    with pytest.raises(ResponseError, match="must not be NaN"):
        drive.park(grant, question=10**400)
    assert drive.members("running") == {"ask"}
    assert drive.members("parked") == set()
    assert drive.settle(grant, "failed").word == "settled"
    drive.ended_well("failed")


def test_question_that_nobody_answers_fails_at_its_deadline(bench: Bench):
    drive = bench.start(program(step("ask", "human")))
    parked = drive.park(drive.take("ask"), wait_s=60)
    bench.tick(59.999)
    assert drive.expire("ask").word == "alive"
    bench.tick(0.001)
    assert drive.sweep() == ["woken"]
    assert drive.answer("ask", parked.fence).by == "deadline"
    assert drive.reason["code"] == "deadline"
    drive.ended_well("failed")


def test_wait_is_woken_at_its_time(bench: Bench):
    drive = bench.start(program(step("nap", "wait"), step("after")))
    drive.park(drive.take("nap"), "wait", wait_s=5)
    bench.tick(5)
    assert drive.sweep() == ["woken"]
    assert drive.live == {"after"}


def test_parking_twice_is_parking_once(bench: Bench):
    drive = bench.start(program(step("ask", "human")))
    grant = drive.take("ask")
    first = drive.park(grant)
    assert drive.park(grant).fence == first.fence == 2
    assert drive.beat(grant).word == "lost"
    assert drive.settle(grant).word == "superseded"
    assert drive.answer("ask", grant.fence).word == "superseded"
    assert drive.answer("ask", first.fence).word == "settled"
    assert drive.park(grant).word == "superseded"
    drive.ended_well()


def test_answer_about_the_work_waits_for_the_attempt_that_compares_it(bench: Bench):
    drive = bench.start(program(step("ask", "human"), step("after")))
    parked = drive.park(drive.take("ask"), seen="{}", asked=1)
    assert drive.answer("ask", parked.fence).word == "settled"
    assert drive.answer("ask", parked.fence).by == "somebody"
    assert drive.live == {"ask"}
    first = drive.take("ask")
    assert first.given is not None
    assert (first.given.seen, first.given.asked) == ("{}", 1)
    bench.tick(31)  # its worker dies
    drive.sweep()
    again = drive.take("ask")
    assert again.given == first.given
    parked = drive.park(again, seen="{}", asked=2)  # the work has changed
    assert drive.answer("ask", parked.fence, verdict="retry").word == "settled"  # asks for changes
    drive.do("after")
    drive.ended_well()


def test_default_of_a_question_about_the_work_counts_at_once(bench: Bench):
    drive = bench.start(program(step("ask", "human")))
    parked = drive.park(drive.take("ask"), seen="{}", asked=1)
    assert drive.answer("ask", parked.fence, by="deadline").word == "settled"
    drive.ended_well()


def test_answer_of_a_stopped_session_is_compared_after_the_resume(bench: Bench):
    drive = bench.start(program(step("ask", "human")))
    parked = drive.park(drive.take("ask"), seen="{}", asked=1)
    drive.control("stop")
    assert drive.answer("ask", parked.fence).word == "settled"
    assert drive.claim("ask").word == "refused"
    drive.control("resume")
    assert drive.take("ask").given is not None


def test_parked_child_is_looked_at_again_and_again(bench: Bench):
    drive = bench.start(program(step("spawn", "child"), step("after")))
    grant = drive.take("spawn")
    parent = {"base": bench.store.keys.base(drive.ref), "address": "spawn", "fence": grant.fence}
    child = bench.start(program(step("work")), name="bbbbbbbb", parent=parent)
    on_child = {"child": child.ref.id, "child_base": bench.store.keys.base(child.ref)}
    parked = drive.park(grant, "child", wait_s=30, **on_child)
    bench.tick(30)
    look = drive.expire("spawn")
    assert (look.word, look.child, look.fence) == ("look", child.ref.id, parked.fence)
    bench.tick(60)
    assert drive.expire("spawn").word == "look"
    child.do("work")
    bench.tick(0)
    assert "deliver|bbbbbbbb|bbbbbbbb|" in bench.due().errands
    assert drive.answer("spawn", parked.fence).word == "settled"
    drive.do("after")
    drive.ended_well()


def test_resume_takes_back_the_stop_that_a_child_was_still_owed(bench: Bench):
    drive = bench.start(program(step("spawn", "child")))
    grant = drive.take("spawn")
    parent = {"base": bench.store.keys.base(drive.ref), "address": "spawn", "fence": grant.fence}
    bench.start(program(step("work")), name="bbbbbbbb", parent=parent)
    drive.park(grant, "child", child="bbbbbbbb", child_base="lh:{bbbbbbbb}:bbbbbbbb:")
    drive.control("stop")
    assert set(bench.scores("errands")) >= {"stop|bbbbbbbb|aaaaaaaa|"}
    drive.control("resume")
    assert set(bench.scores("errands")) == {"resume|bbbbbbbb|aaaaaaaa|"}


def test_child_that_has_ended_is_not_waited_for(bench: Bench):
    drive = bench.start(program(step("spawn", "child")))
    grant = drive.take("spawn")
    child = bench.start(program(step("work")), name="bbbbbbbb")
    child.do("work", "failed")
    on_child = {"child": child.ref.id, "child_base": bench.store.keys.base(child.ref)}
    answer = drive.park(grant, "child", wait_s=30, **on_child)
    assert (answer.word, answer.status) == ("ended", "failed")
    assert drive.settle(grant).word == "settled"


def test_child_of_a_step_that_is_not_held_is_refused(bench: Bench):
    drive = bench.start(program(step("spawn", "child")))
    grant = drive.take("spawn")
    base = bench.store.keys.base(drive.ref)
    drive.release(grant)
    child = type(drive)(bench, drive.ref._replace(id="bbbbbbbb"), drive.program)
    parent = {"base": base, "address": "spawn", "fence": grant.fence}
    assert child.create(parent=parent).word == "refused"
    assert bench.store.ref("bbbbbbbb") is None


def test_cancelled_wait_for_a_child_names_the_child(bench: Bench):
    drive = bench.start(program(step("spawn", "child")))
    drive.park(drive.take("spawn"), "child", child="bbbbbbbb", child_base="lh:{x}:bbbbbbbb:")
    assert drive.control("abort").abort == ("bbbbbbbb",)
    drive.ended_well("aborted")
