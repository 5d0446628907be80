"""Programs written by hand, run step by step through the real scripts."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from app.keys import SessionRef
from app.program import Loop, Step
from tests.property.driving import (
    LEASE_MS,
    Bench,
    Drive,
    assert_nothing_left,
    assert_told_once,
    loop,
    program,
    step,
)
from tests.waiting import wait_until

ITERATION = (
    step("do", "agent"),
    step("check.a", "check", needs=("do",)),
    step("check.b", "check", needs=("do",)),
    step("judge", "judge", needs=("check.a", "check.b")),
)


def iterate(drive, turn: str, verdict: str, iteration: int = 1):
    """One round of the iteration above, with this verdict."""
    block = f"{turn}[{iteration}]"
    drive.do(f"{block}/do")
    drive.do(f"{block}/check.a")
    drive.do(f"{block}/check.b")
    return drive.do(f"{block}/judge", verdict=verdict)


# Order


def test_sequence_releases_one_step_after_the_other(bench: Bench):
    drive = bench.start(program(step("a"), step("b"), step("c")))
    assert drive.live == {"a"}
    assert [hint.address for hint in drive.do("a").hints] == ["b"]
    assert drive.live == {"b"}
    drive.do("b")
    assert drive.do("c").ended == "completed"
    assert drive.counters()["steps"] == 3
    drive.ended_well()


def test_diamond_joins_once_both_sides_arrived(bench: Bench):
    drive = bench.start(
        program(step("a"), step("b"), step("c", needs=("a",)), step("d", needs=("b", "c")))
    )
    drive.do("a")
    assert drive.live == {"b", "c"}
    assert drive.do("c").hints == ()
    assert drive.live == {"b"}
    assert [hint.address for hint in drive.do("b").hints] == ["d"]
    drive.do("d")
    drive.ended_well()


def test_session_ends_only_when_every_open_end_arrived(bench: Bench):
    drive = bench.start(program(step("a", needs=()), step("b", needs=()), step("c", needs=())))
    assert drive.live == {"a", "b", "c"}
    assert drive.do("b").ended is None
    assert drive.do("a").ended is None
    assert drive.do("c").ended == "completed"
    drive.ended_well()


@pytest.mark.parametrize(
    "names", [("a", "ab", "a.b", "a-b", "a_b"), ("A", "a", "a.1", "a1", "a.10")]
)
def test_names_that_begin_alike_are_told_apart(bench: Bench, names: tuple[str, ...]):
    roots = [step(name, needs=()) for name in names]
    joins = [step(f"{name}.join", needs=names) for name in names]
    drive = bench.start(program(*roots, *joins))
    for name in names[:-1]:
        assert drive.do(name).hints == ()
    assert len(drive.do(names[-1]).hints) == len(names)
    for name in names:
        drive.do(f"{name}.join")
    drive.ended_well()


def test_node_may_be_called_document(bench: Bench):
    drive = bench.start(program(step("document"), step("next")))
    assert drive.bench.store.program(drive.program.hash) == drive.program.model_dump_json()
    drive.do("document")
    drive.do("next")
    drive.ended_well()


# Loops


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
    with pytest.raises(ValueError, match="loop 'l' may turn with nothing for a worker to do"):
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


# on_fail


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


# for_each


def test_for_each_takes_its_width_from_the_step_before(bench: Bench):
    drive = bench.start(program(step("list"), step("fetch", for_each="${list}"), step("after")))
    drive.do("list", expand={"fetch": ['"x"', '"y"', '"z"']})
    assert drive.live == {"fetch~1#1", "fetch~1#2", "fetch~1#3"}
    assert bench.store.values(drive.ref, "items", ["fetch#2"]) == {"fetch#2": '"y"'}
    drive.do("fetch~1#3")
    drive.do("fetch~1#1")
    assert [hint.address for hint in drive.do("fetch~1#2").hints] == ["after"]
    drive.do("after")
    drive.ended_well()


@pytest.mark.parametrize("width", [0, None])
def test_for_each_over_nothing_is_full_at_once(bench: Bench, width: int | None):
    drive = bench.start(program(step("list"), step("fetch", for_each="${list}"), step("after")))
    drive.do("list", expand=None if width is None else {"fetch": []})
    assert drive.live == {"after"}
    drive.do("after")
    drive.ended_well()


def test_for_each_over_a_written_list_needs_nobody_to_write_its_width(bench: Bench):
    drive = bench.start(program(step("fetch", for_each=(1, 2)), step("none", for_each=())))
    assert drive.live == {"fetch~1#1", "fetch~1#2"}
    drive.do("fetch~1#2")
    assert drive.do("fetch~1#1").ended == "completed"
    drive.ended_well()


def test_for_each_in_a_loop_has_a_width_of_its_own_in_each_iteration(bench: Bench):
    body = (step("list"), step("fetch", for_each="${list}"), step("j", "judge"))
    drive = bench.start(program(loop("l", *body)))
    drive.do("l~1[1]/list", expand={"fetch": ["1", "2"]})
    drive.do("l~1[1]/fetch~1#1")
    drive.do("l~1[1]/fetch~1#2")
    drive.do("l~1[1]/j", verdict="retry")
    drive.do("l~1[2]/list", expand={"fetch": ["1"]})
    assert drive.live == {"l~1[2]/fetch~1#1"}
    drive.do("l~1[2]/fetch~1#1")
    drive.do("l~1[2]/j", verdict="accept")
    drive.ended_well()


def test_for_each_of_a_thousand_goes_through_the_window(bench: Bench):
    wide = step("w", for_each=tuple(range(1000)))
    drive = bench.start(program(wide, step("after")), window=7)
    done = 0
    assert len(drive.hinted) == 7
    while drive.hinted and done < 1000:
        address = drive.hinted.pop(0)
        grant = drive.take(address)
        assert len(drive.members("hinted")) <= 7
        drive.settle(grant)
        done += 1
    assert drive.hinted == ["after"]
    drive.do("after")
    assert drive.counters()["steps"] == 1001
    drive.ended_well()


def test_item_that_fails_fails_its_for_each_when_critical(bench: Bench):
    drive = bench.start(program(step("w", for_each=(1, 2, 3)), step("after")))
    other = drive.take("w~1#2")
    drive.do("w~1#1", "failed")
    assert drive.state("w~1#3") == "cancelled"
    assert drive.beat(other).word == "cancel"
    assert drive.settle(other).ended == "failed"
    drive.ended_well("failed")


def test_item_that_fails_is_passed_over_when_not_critical(bench: Bench):
    drive = bench.start(program(step("w", for_each=(1, 2), critical=False), step("after")))
    drive.do("w~1#1", "failed")
    drive.do("w~1#2")
    assert drive.live == {"after"}
    assert drive.warnings() == ["w (w~1#1) failed and was passed over"]
    drive.do("after")
    drive.ended_well()


# Failures


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


# Windows


def test_answer_to_a_stopped_session_is_kept_no_longer_than_the_rest(bench: Bench):
    drive = bench.start(program(step("ask", "human"), step("then")))
    fence = drive.park(drive.take("ask")).fence
    drive.control("stop")
    drive.run("answer", {"address": "ask", "fence": fence, "word": "succeeded", "by": "me"},
              outcome='{"word": "succeeded"}')  # fmt: skip
    keys = bench.redis.keys(bench.store.keys.base(drive.ref) + "*")
    assert bench.store.keys.part(drive.ref, "out") in keys
    assert all(bench.redis.ttl(key) > 0 for key in keys)


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


# Leases and deadlines


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


# Repetition


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
    drive.release(drive.take("w~1#3"))  # it stands in the line twice
    one, _ = drive.take("w~1#1"), drive.take("w~1#2")
    assert drive.members("hinted") == {"tools<w~1#3"}
    assert not drive.settle(one, take=["m"]).grants
    drive.take("w~1#3")
    assert drive.members("hinted") == set()


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


# Parking


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


# Control


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


def test_failed_session_is_resumed_with_its_failed_nodes_and_what_stands_on_them(bench: Bench):
    drive = bench.start(
        program(
            step("a", needs=()),
            step("b", needs=()),
            step("c", needs=("a", "b")),
            step("d", needs=("a",)),
        )
    )
    drive.do("a")
    drive.do("d")
    drive.do("b", "failed")
    assert_nothing_left(drive)
    drive.control("resume")
    assert drive.live == {"b~2"}
    drive.do("b~2")
    assert drive.live == {"c"}
    drive.do("c")
    drive.ended_well()


def test_late_success_in_a_failing_session_counts_when_it_is_resumed(bench: Bench):
    drive = bench.start(
        program(
            step("late", needs=()), step("bad", needs=()), step("then", needs=("late",)),
            step("end", needs=()),
        )
    )  # fmt: skip
    late, end = drive.take("late"), drive.take("end")
    drive.do("bad", "failed")
    drive.settle(end)
    assert drive.settle(late).ended == "failed"
    drive.control("resume")
    assert drive.live == {"bad~2", "then"}
    drive.do("bad~2")
    drive.do("then")
    drive.ended_well()


def test_session_that_had_done_all_when_its_budget_ended_it_completes_at_its_resume(bench: Bench):
    steps = [step(name, needs=()) for name in "ab"]
    drive = bench.start(program(*steps), budget={"steps": 1})
    under_way = drive.take("b")
    drive.do("a")
    drive.settle(under_way)
    assert (drive.status, drive.reason["code"]) == ("failed", "budget")
    drive.control("resume", budget={"steps": 9})
    drive.ended_well()


def test_allowance_of_a_resume_counts_for_a_later_retry_too(bench: Bench):
    drive = bench.start(program(loop("l", *ITERATION, turns=1, on_fail="retry", retries=1)))
    iterate(drive, "l~1", "retry")
    iterate(drive, "l~2", "retry")
    drive.control("resume", max_iterations=2)
    for i in (1, 2):
        iterate(drive, "l~3", "retry", i)
    assert drive.turn("l~4")["max"] == 2
    for i in (1, 2):
        iterate(drive, "l~4", "retry", i)
    drive.ended_well("failed")


def test_loop_that_never_began_keeps_its_number_when_the_session_is_resumed(bench: Bench):
    drive = bench.start(program(step("a"), loop("l", *ITERATION)))
    for run in ("a", "a~2"):
        drive.do(run, "failed", retryable=False)
        drive.control("resume")
    drive.do("a~3")
    assert drive.live == {"l~1[1]/do"}


def test_failed_loop_is_resumed_with_a_new_allowance(bench: Bench):
    drive = bench.start(program(loop("l", *ITERATION, turns=1), step("after")))
    iterate(drive, "l~1", "retry")
    drive.control("resume", max_iterations=2)
    iterate(drive, "l~2", "retry")
    iterate(drive, "l~2", "accept", 2)
    drive.do("after")
    assert drive.counters()["iterations"] == 3
    drive.ended_well()


def test_failed_for_each_is_resumed_with_the_width_it_had(bench: Bench):
    drive = bench.start(program(step("list"), step("w", for_each="${list}"), step("after")))
    drive.do("list", expand={"w": ["1", "2"]})
    drive.do("w~1#1")
    drive.do("w~1#2", "failed")
    drive.control("resume")
    drive.do("w~2#2")
    drive.do("w~2#1")
    drive.do("after")
    drive.ended_well()


def test_resume_of_another_end_than_the_one_that_was_read_is_refused(bench: Bench):
    drive = bench.start(program(step("a")))
    drive.do("a", "failed")
    stale = drive.again(drive.program)
    drive.control("resume")
    bench.tick(1)
    drive.do("a~2", "failed")
    assert drive.run("control", {"verb": "resume", "from": ["failed"], **stale}).word == "refused"
    assert drive.status == "failed"


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


# Ends


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
    assert left == {"lh:idem:k"}
    assert bench.redis.ttl("lh:idem:k") > 0


def test_delete_of_a_stopped_session_leaves_no_timer_behind(bench: Bench):
    drive = bench.start(program(step("ask", "human", needs=()), step("b", needs=())))
    drive.park(drive.take("ask"))
    drive.control("stop")
    assert drive.delete().word == "deleted"
    assert set(bench.redis.keys("*")) == set()


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
