"""Yes or no out of what agents really write, and out of nothing else."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.checkers.answers import Decision, Undecided, parse_decision, parse_only_decision

YES, NO = '{"answer": "yes"}', '{"answer": "no"}'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (YES, Decision("yes", "whole")),
        (f"\n  {NO}\n", Decision("no", "whole")),
        (f"I looked.\n{NO}", Decision("no", "object")),
        (f"Here:\n```json\n{NO}\n```", Decision("no", "fence")),
        (f"Here:\n\n``` JSON\n{NO}\n```\n", Decision("no", "fence")),
        (f"```\n{YES}\n```", Decision("yes", "fence")),
        (f"{YES}\n{YES}", Decision("yes", "object")),
        (f'{{"step": 1}}\n{YES}', Decision("yes", "object")),
        (f"{NO}\n\nOn reflection:\n\n{YES}", Decision("yes", "object")),
        (f"{{not json}}\n{YES}", Decision("yes", "object")),
    ],
)
def test_the_last_element_of_an_answer_decides(text: str, found: Decision) -> None:
    assert parse_decision(text) == found


@pytest.mark.parametrize(
    "text",
    [
        f"{NO}\n{YES}",
        f"You wanted {NO} or this:\n{YES}",
        f"{NO}\n```json\n{YES}\n```",
        f"```json\n{NO}\n```\n{YES}",
    ],
)
def test_two_contradictory_objects_of_one_paragraph_decide_nothing(text: str) -> None:
    found = parse_decision(text)
    assert isinstance(found, Undecided)
    assert found.code == "INVALID_SCHEMA"
    assert found.text.startswith("it answers both yes and no; answer with {")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "NO_VALID_CANDIDATE"),
        ("yes", "NO_VALID_CANDIDATE"),
        ("{not json}", "NO_VALID_CANDIDATE"),
        ('{"answer": "yes"', "NO_VALID_CANDIDATE"),
        (f"{YES} - I hope that helps.", "NO_VALID_CANDIDATE"),
        (f"I say {YES}", "NO_VALID_CANDIDATE"),
        (f"{YES} {YES}", "NO_VALID_CANDIDATE"),
        (f"{YES}\nor {NO}, I cannot tell", "NO_VALID_CANDIDATE"),
        (f"> {YES}", "NO_VALID_CANDIDATE"),
        (f"```json\n{YES}", "NO_VALID_CANDIDATE"),
        (f"```json\n{YES}\n```\nso.", "NO_VALID_CANDIDATE"),
        ('"yes"', "INVALID_SCHEMA"),
        ("[]", "INVALID_SCHEMA"),
        ('{"answer": "Yes"}', "INVALID_SCHEMA"),
        ('{"answer": true}', "INVALID_SCHEMA"),
        ('{"Answer": "yes"}', "INVALID_SCHEMA"),
        ('{"answer": "yes", "why": "it is"}', "INVALID_SCHEMA"),
        ('{"answer": "yes", "answer": "yes"}', "INVALID_SCHEMA"),
        ('{"result": {"answer": "yes"}}', "INVALID_SCHEMA"),
        ('```json\n{"answer": "perhaps"}\n```', "INVALID_SCHEMA"),
        ("[yes]", "NO_VALID_CANDIDATE"),
        ("{" * 3_000, "NO_VALID_CANDIDATE"),
        ('{"answer":' * 3_000, "NO_VALID_CANDIDATE"),
    ],
)
def test_every_other_end_decides_nothing(text: str, code: str) -> None:
    found = parse_decision(text)
    assert isinstance(found, Undecided)
    assert found.code == code


@pytest.mark.parametrize("text", ["```json\n", "{", '{"', "{}", "{}\n", "\\", "``` JSON\n{}\n"])
def test_no_text_is_slow_to_read(text: str) -> None:
    begun = time.process_time()
    parse_decision(text * 30_000)
    assert time.process_time() - begun < 5


words = st.lists(
    st.sampled_from([*'{}"\\`', "json", "```json", "```", '"answer"', ":", " ", "yes", '"yes"',
                     '"no"', ",", "\n", YES, NO]), max_size=40,
).map("".join)  # fmt: skip


@given(words)
def test_whatever_is_written_it_ends_in_one_word_or_a_reason(text: str) -> None:
    found = parse_decision(text)
    if isinstance(found, Undecided):
        assert found.code in ("INVALID_SCHEMA", "NO_VALID_CANDIDATE")
    else:
        assert json.loads(found.text) == {"answer": found.answer}
        assert found.answer in text
        assert parse_decision(found.text) == Decision(found.answer, "whole")


@given(before=st.text(alphabet="ab .'\"", max_size=50), after=st.text(max_size=50))
def test_only_white_space_may_follow_the_answer(before: str, after: str) -> None:
    found = parse_decision(f"{before}\n{YES}{after}")
    if isinstance(found, Decision):
        assert (found.answer, after.strip()) == ("yes", "")


@given(words)
def test_a_script_decides_only_with_its_whole_output(text: str) -> None:
    found = parse_only_decision(text)
    if isinstance(found, Decision):
        assert json.loads(text) == {"answer": found.answer}


@pytest.mark.parametrize(
    "text",
    [
        'hi\n{"answer": "yes"}',
        '{"answer": "yes"}\n{"answer": "yes"}',
        '```json\n{"answer": "no"}\n```',
    ],
)
def test_a_script_that_prints_more_than_its_decision_is_told_so(text: str) -> None:
    found = parse_only_decision(text)
    assert isinstance(found, Undecided)
    assert found.text.startswith("something else was printed beside the decision; answer with {")
