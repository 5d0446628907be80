"""What `parse_verdict` makes of the words that checkers really write."""

from __future__ import annotations

import time

import pytest

from leadhand.verdicts import parse_verdict

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


@pytest.mark.parametrize("line", ["UNACCEPTABLE", "ACCEPT?", "I do not ACCEPT", "ACCEPT or RETRY"])
def test_a_line_that_only_holds_the_word_is_left_to_the_scan(line: str) -> None:
    assert parse_verdict(line) == ("accept", line, "scan")


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
    ],
)
def test_no_text_is_slow_to_read(text: str) -> None:
    before = time.process_time()
    parse_verdict(text)
    assert time.process_time() - before < 5
