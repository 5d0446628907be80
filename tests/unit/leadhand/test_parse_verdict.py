"""What `parse_verdict` makes of the words that checkers really write."""

from __future__ import annotations

import time

import pytest

from leadhand.models.verdicts import parse_verdict

UPSTREAM = [
    ("ACCEPT", "accept"),
    ("The tests fail on line 3.\nRETRY", "retry"),
    ("This cannot be done.\nTERMINATE", "terminate"),
    ("looks good\naccept", "accept"),
    ("I have no opinion on this.", "retry"),
    ("I would ACCEPT this\nbut the last line says RETRY", "retry"),
    ("either ACCEPT or RETRY or TERMINATE", "terminate"),
]


@pytest.mark.parametrize(("text", "verdict"), UPSTREAM)
def test_what_the_scan_always_found_is_still_found(text: str, verdict: str) -> None:
    assert parse_verdict(text).verdict == verdict


@pytest.mark.parametrize(
    "line",
    [
        "ACCEPT",
        "accept.",
        "**ACCEPT**",
        "- ACCEPT",
        "> **Accept!**",
        "Verdict: ACCEPT",
        "**Verdict:** ACCEPT",
        "**Verdict: ACCEPT**",
        "Final verdict - `ACCEPT`",
        'verdict = "accept"',
        "## My verdict is ACCEPT.",
    ],
)
def test_a_line_that_is_the_verdict_beats_what_stands_around_it(line: str) -> None:
    parsed = parse_verdict(f"I thought of RETRY.\n{line}\nThere is nothing to RETRY or TERMINATE.")
    assert (parsed.verdict, parsed.decided_by) == ("accept", "line")


#: Texts without a line that is a verdict and without JSON.
SCANNED = [
    ("No issues left, ACCEPT", "accept"),
    ("I cannot ACCEPT this", "retry"),
    ("not ACCEPTED", "retry"),
    ("ACCEPT? no.", "retry"),
    ("UNACCEPTABLE", "retry"),
    ("ACCEPT or RETRY", "retry"),
    ("I do not ACCEPT", "retry"),
    ("I don't ACCEPT it", "retry"),
    ("I don\u2019t ACCEPT it", "retry"),
    ("I can no longer ACCEPT this", "retry"),
    ("I will never ACCEPT this", "retry"),
    ("Neither file lets me ACCEPT", "retry"),
    ("Should I ACCEPT this?", "retry"),
    ("ACCEPTABLE work", "retry"),
    ("RETRYING it would help nobody, ACCEPT", "accept"),
    ("The tests do not fail any more; ACCEPT", "accept"),
    ("It is not pretty, but I ACCEPT it", "accept"),
    ("It is not pretty but I ACCEPT it", "accept"),
    ("The tests do not fail. ACCEPT it", "accept"),
    ("I would not in v1.2 ACCEPT that", "retry"),
    ("RETRY is not needed: ACCEPT", "retry"),
    ("All is well, I ACCEPT this. Thank you.", "accept"),
    ("I ACCEPT this. Or should I RETRY? I do not know.", "retry"),
    ("This would be in vain, TERMINATE", "terminate"),
    ("**ACCEPT**: all tests pass", "accept"),
    ("Nothing notable, ACCEPT", "accept"),
    ("I am unable to ACCEPT this", "retry"),
    ("I refuse to accept this.", "retry"),
    ("I cannot, in good conscience, ACCEPT this", "retry"),
    ("I would ACCEPT this if the tests passed.", "retry"),
    ("Please fix it.\nThen I will accept.", "retry"),
    ("No ACCEPT.", "retry"),
    ("It fails to meet the accept criteria", "retry"),
]


@pytest.mark.parametrize(("text", "verdict"), SCANNED)
def test_the_scan_accepts_only_a_plain_statement(text: str, verdict: str) -> None:
    parsed = parse_verdict(text)
    assert (parsed.verdict, parsed.feedback) == (verdict, text)
    assert parsed.decided_by in ("scan", "default")


@pytest.mark.parametrize(
    "text",
    [
        "I cannot ACCEPT this",
        "UNACCEPTABLE",
        "Does it do? ACCEPT?",
        '{"verdict": "retry"} and never ACCEPT',
    ],
)
def test_a_line_that_is_a_verdict_wins_whatever_else_is_there(text: str) -> None:
    for line in ("ACCEPT", "verdict: ACCEPT"):
        assert parse_verdict(f"{text}\n{line}")[::2] == ("accept", "line")
        assert parse_verdict(f"{line}\n{text}")[::2] == ("accept", "line")


@pytest.mark.parametrize("word", ['"reject"', "false", '"maybe"', "null"])
def test_json_with_an_unknown_verdict_is_a_retry_whatever_its_feedback_says(word: str) -> None:
    text = f'{{"verdict": {word}, "feedback": "Fix the tests and I will accept it"}}'
    assert parse_verdict(text)[::2] == ("retry", "default")


def test_the_last_line_that_is_a_verdict_wins() -> None:
    assert parse_verdict("ACCEPT\nOn reflection:\nRETRY") == (
        "retry",
        "ACCEPT\nOn reflection:\nRETRY",
        "line",
    )


def test_a_verdict_far_to_the_right_is_not_mistaken_for_a_line_of_its_own() -> None:
    assert parse_verdict("ACCEPT" + " " * 300 + "is not what I say").decided_by == "scan"


def test_json_in_a_fence_is_read_with_its_feedback() -> None:
    text = (
        'Here:\n```json\n{\n "verdict": "RETRY",\n "feedback": "do not ACCEPT yet"\n}\n```\nDone.'
    )
    assert parse_verdict(text) == ("retry", "do not ACCEPT yet", "json")


def test_the_outer_verdict_of_nested_json_counts() -> None:
    text = '{"verdict": "retry", "checks": [{"verdict": "accept"}]}'
    assert parse_verdict(text).verdict == "retry"


def test_json_verdicts_that_contradict_each_other_are_a_retry() -> None:
    text = 'You asked for {"verdict": "retry"} or {"verdict": "accept"}, and I cannot tell'
    assert parse_verdict(text) == ("retry", text, "json")


def test_json_without_feedback_hands_on_the_whole_text() -> None:
    text = 'Fine work. {"verdict": "accept"}'
    assert parse_verdict(text) == ("accept", text, "json")


@pytest.mark.parametrize(
    "text", ['{"verdict": "maybe"}', '{"verdict": 1}', '{"verdict": "acc', '["verdict"]', ""]
)
def test_what_gives_no_verdict_asks_for_another_try(text: str) -> None:
    assert parse_verdict(text) == ("retry", text, "default")


@pytest.mark.parametrize(
    "text",
    [
        '"verdict"' + '{"a":' * 200_000,
        '"verdict": ' + "{" * 500_000,
        "*" * 500_000,
        "verdict " * 90_000,
        "not " * 90_000 + "ACCEPT",
        "not ACCEPT, " * 40_000,
        "ACCEPT?" * 60_000,
    ],
)
def test_no_text_is_slow_to_read(text: str) -> None:
    before = time.process_time()
    parse_verdict(text)
    assert time.process_time() - before < 5
