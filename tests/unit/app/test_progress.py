"""What an iteration comes to in one word."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from app.core.outcomes import Outcome, Verdict
from app.history.ledger import signature_of


def judged(*checks: tuple[str, str, str], verdict: Verdict = "retry") -> Outcome:
    kept: list[JsonValue] = [
        {"name": name, "verdict": said, "feedback": feedback} for name, said, feedback in checks
    ]
    return Outcome(word="succeeded", verdict=verdict, value={"checks": kept})


REFUSED = judged(("lint", "accept", "fine"), ("tests", "retry", "1 failed in 0.31s"))


def signature(outcome: Outcome = REFUSED, **inputs: JsonValue) -> str | None:
    standing = signature_of(inputs, outcome)
    return standing.signature if standing else None


def test_the_same_work_refused_in_the_same_way_is_the_same():
    slower = judged(("tests", "retry", "1 failed in 4.02s"), ("lint", "accept", "fine, again"))
    assert signature(work="I tried") == signature(slower, work=" I tried\n")
    standing = signature_of({"work": "I tried"}, REFUSED)
    assert standing is not None
    assert standing.refused_by == "tests"


@pytest.mark.parametrize(
    "other",
    [
        judged(("tests", "retry", "2 failed in 0.31s")),
        judged(("tests", "retry", "1 failed in 0.31s"), ("lint", "retry", "fine")),
    ],
)
def test_another_refusal_is_progress(other: Outcome):
    assert signature(work="I tried") != signature(other, work="I tried")


def test_other_work_is_progress_however_it_is_described():
    assert signature(work="I tried", digest="a") != signature(work="I tried", digest="b")


def test_work_that_its_digest_does_not_see_is_known_by_what_is_said_of_it():
    for passed in (1, 2):
        better = judged(("tests", "retry", f"{passed + 1} of 6 tests pass in {passed}s"))
        now = judged(("tests", "retry", f"{passed} of 6 tests pass in {passed + 1}s"))
        assert signature(now, digest="a") != signature(better, digest="a")


def test_known_work_that_stands_still_is_that_whatever_its_doer_says_of_it():
    slower = judged(("tests", "retry", "1 failed in 4.02s"))
    assert signature(digest="a", work="once") == signature(slower, digest="a", work="twice")


def test_nobody_knows_of_work_without_digest_and_text():
    assert signature(work=" ") is None
    assert signature(judged(verdict="accept"), work="I tried") is None
