"""Checkers as they are written in one line of text, with or without a name."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from leadhand.models.documents import Checker, LoopDocument


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("ruff check .", {"command": "ruff check ."}),
        ("lint: ruff check .", {"name": "lint", "command": "ruff check ."}),
        ("unit-3.11:\n  pytest -q", {"name": "unit-3.11", "command": "pytest -q"}),
        ("agent: Is it: clear?", {"prompt": "Is it: clear?"}),
        ("agent(critic): note: good?", {"agent": "critic", "prompt": "note: good?"}),
        ("look: agent: Is it clear?", {"name": "look", "prompt": "Is it clear?"}),
        ("look: agent(critic): Good?", {"name": "look", "agent": "critic", "prompt": "Good?"}),
        ("sum: callable: sums:check", {"name": "sum", "callable": "sums:check"}),
        ("sum: tool: sums:check", {"name": "sum", "tool": "sums:check"}),
        ("good: RUBRIC.md", {"name": "good", "rubric": "RUBRIC.md"}),
        ("good: rubric: docs/R.md", {"name": "good", "rubric": "docs/R.md"}),
        # Shell commands that are cut nowhere.
        ("lint=ruff check .", {"command": "lint=ruff check ."}),
        ("CI=1 make test", {"command": "CI=1 make test"}),
        (
            'out=$(git status --porcelain); test -z "$out"',
            {"command": 'out=$(git status --porcelain); test -z "$out"'},
        ),
        (": > log; make", {"command": ": > log; make"}),
        ("test:unit", {"command": "test:unit"}),
        ("./go: x", {"command": "./go: x"}),
        ("npm run test: unit", {"command": "npm run test: unit"}),
    ],
)
def test_a_name_is_a_word_before_a_colon_and_a_space(text: str, fields: dict[str, Any]) -> None:
    checker = Checker.model_validate(text)
    assert checker.model_dump(include=checker.model_fields_set) == fields


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Agent: is it good?", "'Agent' is no name for a checker; write `agent: ...`"),
        ("RUBRIC: R.md", "'RUBRIC' is no name for a checker; write `rubric: ...`"),
        ("a: b: make", "a checker has one name, not 'a' and 'b'"),
        ("look: agent:", "at least 1 character"),
        ("a: callable: nothing", "should match pattern"),
    ],
)
def test_a_name_that_is_taken_and_a_spec_that_is_none_are_refused(text: str, error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        Checker.model_validate(text)


def test_given_names_must_differ() -> None:
    with pytest.raises(ValidationError, match="2 are named 'a'; names must differ"):
        LoopDocument.model_validate({"task": "t", "checkers": ["a: true", "a: false"]})
