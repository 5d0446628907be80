"""Decisions, what hangs on them, and what ends an iteration: programs by hand, step by step."""

from __future__ import annotations

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Given, Loop, Program, Step
from app.sessions.submit import About
from tests.engine.driving import Bench, loop, program, step
from tests.engine.world import World

YES, NO = Given(node="ask", verdict="accept"), Given(node="ask", verdict="retry")
ASK = step("ask", "decide")


def given(node: Step | Loop, said: Given) -> Step | Loop:
    return node.model_copy(update={"given": said})


def forked() -> Program:
    return program(
        ASK,
        given(step("yes"), YES),
        given(step("no", needs=("ask",)), NO),
        step("after", needs=("yes", "no")),
    )


@pytest.mark.parametrize(
    ("said", "runs", "passed"), [("accept", "yes", "no"), ("retry", "no", "yes")]
)
def test_a_decision_runs_one_branch_and_skips_the_other(
    bench: Bench, said: str, runs: str, passed: str
):
    drive = bench.start(forked())
    drive.do("ask", verdict=said)
    assert drive.live == {runs}
    assert drive.state(passed) == "skipped"
    assert drive.bench.store.values(drive.ref, "out", [passed])[passed].startswith('{"')
    drive.do(runs)
    drive.do("after")
    assert drive.counters()["steps"] == 3
    drive.ended_well()


@pytest.mark.parametrize("how", ["no verdict", "failed", "skipped"])
def test_whoever_gave_no_verdict_releases_neither_branch(bench: Bench, how: str):
    ask = step("ask", "decide", critical=False)
    drive = bench.start(program(ask, *forked().body[1:]))
    match how:
        case "failed":
            drive.do("ask", "failed", "accept", retryable=False)
        case "skipped":
            drive.do("ask", "skipped", "accept")
        case _:
            drive.do("ask")
    assert drive.live == {"after"}
    drive.do("after")
    drive.ended_well()


def test_a_skipped_loop_arrives_with_everything_in_it_untouched(bench: Bench):
    drive = bench.start(
        program(
            ASK,
            given(loop("l", step("a"), step("j", "judge")), YES),
            given(step("each", for_each=(1, 2), needs=("ask",)), YES),
            step("after", needs=("l", "each")),
        )
    )
    drive.do("ask", verdict="retry")
    assert drive.live == {"after"}
    for id_ in ("l~1", "each~1"):
        assert (drive.turn(id_)["state"], drive.turn(id_)["verdict"]) == ("closed", "skipped")
    drive.do("after")
    assert drive.ledger() == []
    drive.ended_well()


def test_a_branch_that_is_skipped_is_skipped_to_its_end(bench: Bench):
    inner = step("inner", "decide", needs=("ask",))
    deep = step("deep", needs=("inner",)).model_copy(
        update={"given": Given(node="inner", verdict="retry")}
    )
    drive = bench.start(program(ASK, given(inner, YES), deep, step("after")))
    drive.do("ask", verdict="retry")
    assert drive.state("inner") == drive.state("deep") == "skipped"
    drive.do("after")
    drive.ended_well()


def test_a_loop_decides_anew_in_each_iteration(bench: Bench):
    body = (ASK, given(step("yes"), YES), step("enough", "break"))
    drive = bench.start(program(loop("l", *body)))
    for i, said in ((1, "retry"), (2, "accept"), (3, "retry")):
        drive.do(f"l~1[{i}]/ask", verdict=said)
        if said == "accept":
            drive.do(f"l~1[{i}]/yes")
        drive.do(f"l~1[{i}]/enough", verdict="accept" if i == 3 else "retry")
    states = [drive.state(f"l~1[{i}]/yes") for i in (1, 2, 3)]
    assert states == ["skipped", "succeeded", "skipped"]
    drive.ended_well()


def test_a_decision_that_is_made_anew_counts_anew(bench: Bench):
    drive = bench.start(program(ASK, given(step("yes"), YES), step("last")))
    drive.do("ask", verdict="retry")
    assert drive.state("yes") == "skipped"
    drive.do("last", "failed", retryable=False)
    drive.control("resume")
    assert drive.live == {"last~2"}
    drive.do("last~2")
    drive.ended_well()


def test_what_failed_is_decided_by_the_newest_answer(bench: Bench):
    drive = bench.start(program(ASK, given(step("yes"), YES)))
    drive.do("ask", "failed", "accept", retryable=False)
    drive.control("resume")
    drive.do("ask~2", verdict="accept")
    assert drive.live == {"yes"}
    drive.do("yes")
    drive.ended_well()


def test_what_was_skipped_is_nothing_to_those_who_name_it(redis_url: str):
    world = World(redis_url)
    names = {"text": "${yes.text}", "word": "${yes.word}", "whole": "${yes}", "loop": "${l.text}"}
    body = (
        ASK,
        given(step("yes", needs=("ask",)), YES),
        given(loop("l", step("x"), needs=("ask",)), YES),
        step("after", needs=("yes", "l"), inputs=names),
    )
    id_ = world.engine.submit.program(program(*body), About(kind="flow", name="x")).session
    ref = SessionRef(id_, id_)
    world.settle(ref, world.grant(ref, "ask"), Outcome(word="succeeded", verdict="retry"))
    work = world.engine.attempts.work(ref, world.grant(ref, "after"))
    assert work.inputs == dict.fromkeys(names)


# What ends an iteration


def continuing(turns: int = 3) -> Program:
    again = step("again", "break", ends="iteration")
    return program(loop("l", step("a"), again, step("b"), step("done", "break"), turns=turns))


def test_continue_begins_the_next_iteration_and_passes_over_the_rest(bench: Bench):
    drive = bench.start(continuing())
    drive.do("l~1[1]/a")
    drive.do("l~1[1]/again", verdict="accept")
    assert drive.live == {"l~1[2]/a"}
    assert drive.state("l~1[1]/b") == "pending"
    drive.do("l~1[2]/a")
    drive.do("l~1[2]/again", verdict="retry")
    drive.do("l~1[2]/b")
    drive.do("l~1[2]/done", verdict="accept")
    assert drive.ledger() == [("l", 1, 1, "retry"), ("l", 1, 2, "accept")]
    drive.ended_well()


def test_continue_in_the_last_iteration_reaches_the_limit(bench: Bench):
    drive = bench.start(continuing(turns=1))
    drive.do("l~1[1]/a")
    assert drive.do("l~1[1]/again", verdict="accept").ended == "failed"
    assert drive.turn("l~1")["verdict"] == "max_iterations"
    assert drive.ledger() == [("l", 1, 1, "retry")]
    drive.ended_well("failed")


def test_continue_turns_the_innermost_loop_only(bench: Bench):
    inner = continuing().body[0]
    drive = bench.start(program(loop("o", inner, step("end", "break"))))
    drive.do("o~1[1]/l~1[1]/a")
    drive.do("o~1[1]/l~1[1]/again", verdict="accept")
    assert drive.live == {"o~1[1]/l~1[2]/a"}
    assert drive.turn("o~1")["iteration"] == 1


def test_continue_waits_for_what_the_join_before_it_waits_for(bench: Bench):
    body = (
        step("a", needs=()),
        step("b", needs=()),
        step("again", "break", needs=("a", "b"), ends="iteration"),
        step("c"),
    )
    drive = bench.start(program(loop("l", *body, turns=2)))
    for i in (1, 2):
        drive.do(f"l~1[{i}]/a")
        assert drive.live == {f"l~1[{i}]/b"}
        drive.do(f"l~1[{i}]/b")
        drive.do(f"l~1[{i}]/again", verdict="accept")
    drive.ended_well("failed")


# Refusals


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            (given(step("a"), YES), ASK),
            "'a' depends on the verdict of 'ask', which it does not wait for",
        ),
        (
            (ASK, given(step("a", needs=()), YES)),
            "'a' depends on the verdict of 'ask', which it does not wait for",
        ),
        (
            (step("ask"), given(step("a"), YES)),
            "'a' depends on the verdict of 'ask', which gives no verdict",
        ),
        (
            (step("ask", "check", for_each=(1,)), given(step("a"), YES)),
            "'a' depends on the verdict of 'ask', which is a for_each",
        ),
        ((step("a", ends="iteration"),), "'a' ends an iteration; only a break"),
        (
            (
                loop(
                    "l",
                    step("a"),
                    step("c", "break", ends="iteration", needs=("a",)),
                    step("b", needs=("a",)),
                ),
            ),
            "'l/c' ends an iteration, and 'l/b' may run beside it",
        ),
        ((step("c", "break", ends="iteration"),), "break 'c' is outside a loop"),
        (
            (loop("l", ASK, given(loop("i", given(step("x"), YES)), YES)),),
            "loop 'l/i' may repeat without any step for a worker",
        ),
    ],
)
def test_what_could_not_be_decided_is_refused(body: tuple[Step | Loop, ...], error: str):
    with pytest.raises(ValueError, match=error):
        program(*body)


def test_a_conversation_is_an_agent_and_an_identifier():
    assert step("a", "agent", conversation="coder|main").conversation == "coder|main"
    with pytest.raises(ValueError, match="conversation"):
        step("a", "agent", conversation="coder")
