"""What `${steps.LABEL}` is where several steps might be meant, on the real scripts."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import DECIDERS
from leadhand.models.verdicts import Reason, ReasonCode
from tests.engine.driving import Bench
from tests.engine.world import World
from tests.flows import ask, flow, llm, loop

#: The texts shown for missing results.
NOT_RUN, FAILED, SILENT = "(did not run)", "(failed)", "(nothing was said)"


class Talk:
    """A flow that is carried out one step at a time; every agent says where it was asked."""

    def __init__(self, bench: Bench, *steps: dict[str, Any], **more: Any) -> None:
        self.world = World.of(bench)
        id_ = self.world.engine.submit.document(flow(*steps, **more)).session
        self.ref = SessionRef(id_, id_)
        #: The text that each step received, by its address.
        self.told: dict[str, Any] = {}

    def go(self, *answers: str, failing: str = "") -> dict[str, Any]:
        """To the end; the answers are those of the decisions, in order."""
        left = list(answers)
        while ready := self.world.engine.store.members(self.ref, "live", 10):
            (address,) = ready
            grant = self.world.grant(self.ref, address)
            work = self.world.engine.attempts.work(self.ref, grant)
            self.told[address] = work.inputs.get("lines", work.inputs.get("arguments"))
            outcome = Outcome(word="succeeded", text=f"of {address}")
            if work.inputs.get("when") is False:
                outcome = Outcome(word="skipped")
            elif work.step.action in DECIDERS:
                verdict = "accept" if left.pop(0) == "yes" else "retry"
                outcome = Outcome.model_validate({"word": "succeeded", "verdict": verdict})
            elif address == failing:
                reason = Reason(code=ReasonCode.FAILED_STEP, text="it broke")
                outcome = Outcome(word="failed", reason=reason, retryable=False)
            self.world.settle(self.ref, grant, outcome)
        assert not left
        return self.told


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (llm(label="計画"), llm("${steps.計画}", label="レビュー")),
        (llm(label="what now?"), llm("${steps.what now?}", label="what now!")),
        (llm(label="llm1"), llm("${steps.llm1}")),
        (llm(label="plan"), llm("${steps.plan}", label="plan")),
    ],
)
def test_a_label_means_the_step_that_was_seen_whatever_else_is_called_so(
    bench: Bench, outer: dict[str, Any], inner: dict[str, Any]
) -> None:
    talk = Talk(bench, outer, loop(inner, ask(), label="l"))
    first, *_ = talk.world.engine.store.members(talk.ref, "live", 10)
    told = talk.go("no", "yes")
    said = [lines for address, lines in told.items() if address.endswith(f"/{first}")]
    assert said == [[f"of {first}"]] * 2


def test_a_step_that_comes_later_in_a_loop_is_not_the_one_before_the_loop(bench: Bench) -> None:
    body = (llm("${steps.plan}", label="a"), llm(label="plan"), llm("${steps.plan}", label="b"))
    told = Talk(bench, llm(label="plan"), loop(*body, ask(), label="l")).go("no", "yes")
    for turn in ("l~1[1]", "l~1[2]"):
        assert told[f"{turn}/a"] == ["of plan"]
        assert told[f"{turn}/b"] == [f"of {turn}/plan"]


@pytest.mark.parametrize(
    ("answers", "said"),
    [("yes no", "of work"), ("no no", "of work-2"), ("no yes", "of work-3")],
)
def test_of_branches_the_last_that_ran_is_meant(bench: Bench, answers: str, said: str) -> None:
    either = {**ask("if"), "then": [llm(label="work")], "else": [llm(label="work")]}
    again = {**ask("if"), "then": [llm(label="work")]}
    talk = Talk(bench, either, again, llm("${steps.work}", label="tell"))
    assert talk.go(*answers.split())["tell"] == [said]


def test_a_step_that_was_passed_over_hides_no_earlier_one(bench: Bench) -> None:
    again = {**ask("if"), "then": [llm("${steps.draft}", label="draft")]}
    steps = (llm(label="draft"), again, llm("${steps.draft}", label="tell"))
    assert Talk(bench, *steps).go("no")["tell"] == ["of draft"]
    told = Talk(bench, *steps).go("yes")
    assert (told["draft-2"], told["tell"]) == (["of draft"], ["of draft-2"])


def test_what_ran_nowhere_says_so(bench: Bench) -> None:
    either = {**ask("if"), "then": [llm(label="a")], "else": [llm(label="b")]}
    tell = llm(messages=[{"role": "user", "content": ["${steps.a}", "${steps.b}"]}], label="tell")
    assert Talk(bench, either, tell).go("no")["tell"] == [NOT_RUN, "of b"]


def test_a_loop_came_to_what_was_said_last_in_it(bench: Bench) -> None:
    tell = llm("${steps.l}", label="tell")
    after_break = loop(llm(label="review"), ask(), llm(label="mend"), label="l")
    assert Talk(bench, after_break, tell).go("no", "yes")["tell"] == ["of l~1[2]/review"]
    break_first = loop(ask(), llm(label="mend"), label="l")
    talk = Talk(bench, break_first, tell)
    assert talk.go("no", "no", "yes")["tell"] == ["of l~1[2]/mend"]
    assert talk.world.engine.queries.result(talk.ref.id).result_text == "of tell"
    passed = loop(llm(label="a"), ask(), {**ask("if"), "then": [llm(label="b")]}, label="l")
    assert Talk(bench, passed, tell).go("no", "yes", "yes")["tell"] == ["of l~1[2]/a"]
    inner = loop(loop(llm(label="a"), ask(), label="in"), ask(), label="l")
    assert Talk(bench, inner, tell).go("no", "yes", "yes")["tell"] == ["of l~1[1]/in~1[2]/a"]


def test_a_loop_in_which_nobody_spoke_says_so(bench: Bench) -> None:
    silent = loop(ask(), llm(label="mend"), label="l")
    assert Talk(bench, silent, llm("${steps.l}", label="tell")).go("yes")["tell"] == [SILENT]
    maybe = {**ask("if"), "then": [silent]}
    assert Talk(bench, maybe, llm("${steps.l}", label="tell")).go("no")["tell"] == [NOT_RUN]


@pytest.mark.parametrize("failing", ["bad-1", "bad"])
def test_a_step_that_failed_and_was_passed_over_says_so(bench: Bench, failing: str) -> None:
    said = [{"role": "user", "content": [text]} for text in ("first", "second")]
    bad = llm(messages=said, label="bad", continueOnFailure=True)
    told = Talk(bench, bad, llm("${steps.bad}", label="tell")).go(failing=failing)
    assert told["tell"] == [FAILED]
