"""What holds for every rule and every set of checks."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from app.core.outcomes import Outcome
from leadhand.models.verdicts import Reason, ReasonCode
from workers.checkers.combine import combine
from workers.prompts import FEEDBACK_LIMIT
from workers.task import Check

#: From worst to best, for who waits for the loop.
ORDER = ("terminate", "retry", "accept")

UNCLEAR = Outcome(word="succeeded", verdict="retry", decided_by="none")

words = st.sampled_from(["accept", "retry", "terminate", "lost", "timeout"])
rules = st.sampled_from(["all", "any"]) | st.integers(min_value=1, max_value=8)
texts = st.text(max_size=30)


def outcome(word: str, text: str = "") -> Outcome | None:
    if word == "lost":
        return None
    if word == "timeout":
        reason = Reason(code=ReasonCode.TIMEOUT, text="too slow")
        return Outcome(word="failed", text=text, reason=reason)
    return Outcome.model_validate({"word": "succeeded", "verdict": word, "text": text})


def checks_of(words: list[str]) -> list[Check]:
    return [Check(name=f"c{i}", outcome=outcome(word)) for i, word in enumerate(words)]


lists = st.lists(words, min_size=1, max_size=8)
peaceful = st.lists(words.filter(lambda word: word != "terminate"), min_size=1, max_size=8)


@given(rules, lists, st.randoms())
def test_the_order_of_the_checks_does_not_matter(rule, given_words, random) -> None:
    shuffled = list(given_words)
    random.shuffle(shuffled)
    one, other = combine(rule, checks_of(given_words)), combine(rule, checks_of(shuffled))
    assert one.verdict == other.verdict
    assert (one.reason and one.reason.code) == (other.reason and other.reason.code)


@given(rules, lists, st.data())
def test_turning_a_refusal_into_accept_never_makes_it_worse(rule, given_words, data) -> None:
    refusing = [i for i, word in enumerate(given_words) if word != "accept"]
    assume(refusing)
    better = list(given_words)
    better[data.draw(st.sampled_from(refusing))] = "accept"
    before = combine(rule, checks_of(given_words)).verdict
    after = combine(rule, checks_of(better)).verdict
    assert ORDER.index(after) >= ORDER.index(before)


@given(rules, lists)
def test_one_terminate_wins_over_everything(rule, given_words) -> None:
    judgement = combine(rule, checks_of([*given_words, "terminate"]))
    assert judgement.verdict == "terminate"
    assert judgement.reason is not None
    assert judgement.reason.code is ReasonCode.TERMINATED


@given(rules, lists)
def test_a_lost_check_and_a_refusing_one_never_make_an_accept(rule, given_words) -> None:
    refusals = ["retry" if word == "lost" else word for word in given_words]
    lost, refused = combine(rule, checks_of(given_words)), combine(rule, checks_of(refusals))
    assert (lost.verdict == "accept") == (refused.verdict == "accept")


@given(rules, peaceful)
def test_checker_down_is_said_just_where_no_word_of_the_others_could_help(
    rule, given_words
) -> None:
    judgement = combine(rule, checks_of(given_words))
    down = judgement.reason is not None and judgement.reason.code is ReasonCode.CHECKER_DOWN
    hopeful = ["lost" if word == "lost" else "accept" for word in given_words]
    assert down == (combine(rule, checks_of(hopeful)).verdict != "accept")


@given(rules, st.lists(st.sampled_from(["accept", "retry", "unclear"]), min_size=1), st.data())
def test_judge_unclear_is_said_just_where_the_rule_needs_who_was_unclear_twice(
    rule, given_words, data
) -> None:
    names = [f"c{i}" for i in range(len(given_words))]
    before = data.draw(st.sets(st.sampled_from(names)))
    checks = [
        Check(name=name, outcome=UNCLEAR if word == "unclear" else outcome(word))
        for name, word in zip(names, given_words, strict=True)
    ]
    judgement = combine(rule, checks, before)
    twice = [
        name in before and word == "unclear" for name, word in zip(names, given_words, strict=True)
    ]
    hopeful = ["retry" if stuck else "accept" for stuck in twice]
    ended = judgement.reason is not None and judgement.reason.code is ReasonCode.JUDGE_UNCLEAR
    assert ended == (combine(rule, checks_of(hopeful)).verdict != "accept")
    assert ended == (judgement.verdict == "terminate")
    assert judgement.verdict == "terminate" or judgement == combine(rule, checks)


@given(rules, st.lists(st.tuples(words, texts), min_size=2, max_size=8))
def test_every_refusing_checker_is_named_and_the_whole_is_bounded(rule, pairs) -> None:
    checks = [
        Check(name=f"c{i}", outcome=outcome(word, text * 1000))
        for i, (word, text) in enumerate(pairs)
    ]
    judgement = combine(rule, checks)
    assert len(judgement.feedback) <= FEEDBACK_LIMIT
    if judgement.verdict != "accept":
        for check, (word, _) in zip(checks, pairs, strict=True):
            assert (f"## {check.name} (" in judgement.feedback) == (word != "accept")


@given(st.integers(1, 8), peaceful)
def test_k_of_n_counts_accepts(rule, given_words) -> None:
    accepts = given_words.count("accept")
    verdict = combine(rule, checks_of(given_words)).verdict
    assert (verdict == "accept") == (accepts >= min(rule, len(given_words)))
