"""Questions of bodies: what makes two of them the same, and how an answer is read."""

from __future__ import annotations

import pytest

from leadhand.client.questions import question_of


def test_the_same_question_has_the_same_key() -> None:
    one = question_of("why?", {"choices": ["a", "b"]})
    assert one == question_of("why?", {"choices": ("a", "b"), "form": None})
    others = [
        question_of("why not?", {"choices": ["a", "b"]}),
        question_of("why?", {"choices": ["a"]}),
        question_of("why?", {"choices": ["a", "b"]}, timeout_s=5),
        question_of("why?", {"choices": ["a", "b"]}, key="2"),
    ]
    assert len({one.key, *(other.key for other in others)}) == 5
    # Without this policy and a key, each attempt would ask anew.
    assert one.on_parent_end == "let-go-on"


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"choices": ["a"], "default": {"text": "b"}}, "none of the choices"),
        ({"form": {"type": "object", "properties": {"x": {"type": "date"}}}}, "type"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_faulty_question_is_refused_in_one_sentence(rules: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        question_of("why?", rules)
    assert len(str(refused.value).splitlines()) == 1
