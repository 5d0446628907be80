"""Checkers as they are written in one line of text, with or without a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from leadhand.flows.documents import FlowDefinition
from leadhand.models.documents import Checker, LoopDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument


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


@pytest.mark.parametrize(
    ("kind", "fields", "error"),
    [
        ("loop", {"isolated": True, "clean": True}, "isolated and clean exclude each other"),
        ("loop", {"writes": True, "clean": True}, "writes and clean exclude each other"),
        ("loop", {"clean": True}, "clean checkers need a working folder; give cwd"),
        ("workflow", {"isolated": True}, "phase 'p': isolated and clean checkers need a working"),
        ("plan", {"clean": True}, "clean checkers need a working folder; give cwd"),
        ("shared", {"isolated": True}, "leave `workspace: shared` out, or make them `clean`"),
        ("branch", {"clean": True}, "a clean checker cannot run beside other steps; put it after"),
        ("branch", {"isolated": True}, "an isolated checker cannot run beside other steps; put it"),
    ],
)
def test_checkers_that_run_by_themselves_are_refused_where_they_cannot(
    kind: str, fields: dict[str, Any], error: str
) -> None:
    checker = {"command": "true", **fields}
    model, document = _DOCUMENTS[kind]
    with pytest.raises(ValidationError, match=error):
        model.model_validate(document(checker))


_DOCUMENTS: dict[str, tuple[type[BaseModel], Callable[[object], object]]] = {
    "loop": (LoopDocument, lambda one: {"task": "t", "checkers": [one]}),
    "workflow": (
        WorkflowDocument,
        lambda one: {"name": "w", "phases": [{"name": "p", "task": "t", "checkers": [one]}]},
    ),
    "plan": (PlanDocument, lambda one: {"request": "r", "checkers": [one]}),
    "shared": (
        PlanDocument,
        lambda one: {"request": "r", "checkers": [one], "cwd": "/x", "workspace": "shared"},
    ),
    "branch": (
        FlowDefinition,
        lambda one: {
            "steps": [
                {
                    "type": "parallel",
                    "branches": [
                        {"steps": [{"type": "check", "checker": one}]},
                        {"steps": [{"type": "wait", "seconds": 1}]},
                    ],
                }
            ]
        },
    ),
}
