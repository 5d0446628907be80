"""Answers of a team lead that is asked for another way: what is an edit, and what is refused."""

from __future__ import annotations

import json

import pytest

from workers.agents.draft import DraftInputs, parse_replan
from workers.prompts import replan_prompt

INPUTS = DraftInputs(
    request="Build it.", checkers=("tests",), current=[{"id": "a"}, {"id": "b"}], failed="{}"
)


def test_edit_is_found_between_prose_and_may_name_its_own_new_tasks() -> None:
    operations = [
        {"op": "add", "task": {"id": "new", "title": "New", "checkers": ["tests"]}},
        {"op": "change", "id": "a", "dependencies": ["new"]},
        {"op": "move", "id": "new"},
        {"op": "retry", "id": "a"},
    ]
    text = f"I would do this:\n```json\n{json.dumps({'operations': operations})}\n```\nGood luck."
    found = parse_replan(text, INPUTS)
    assert [one.op for one in found.operations] == ["add", "change", "move", "retry"]


def test_answer_without_operations_is_an_answer() -> None:
    found = parse_replan('{"operations": [], "why": "it cannot be done"}', INPUTS)
    assert (found.operations, found.why) == ((), "it cannot be done")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("Let us drop it.", 'no JSON with "operations"'),
        ('{"tasks": []}', 'no JSON with "operations"'),
        ('{"operations": [{"op": "drop", "id": "c"}]}', "the plan has no task 'c'"),
        ('{"operations": [{"op": "burn", "id": "a"}]}', "operations.0"),
        ('{"operations": [{"op": "change", "id": "a", "priority": 12}]}', "priority is '12'"),
        (
            '{"operations": [{"op": "change", "id": "a", "checkers": ["test"]}]}',
            "did you mean 'tests'?",
        ),
        (
            '{"operations": [{"op": "add", "task": {"id": "n", "title": "N", "checkers": ["x"]}}]}',
            "the checker 'x'",
        ),
    ],
)
def test_answer_that_is_no_edit_says_what_is_wrong(answer: str, why: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        parse_replan(answer, INPUTS)
    assert why in str(caught.value)


def test_prompt_has_the_request_the_plan_and_the_reason() -> None:
    prompt = replan_prompt(
        request="Build it.",
        failed={"task": "a", "run": 2, "reason": "no compiler"},
        current=[{"id": "a", "title": "A", "status": "failed"}],
        checkers=("tests",),
    )
    for part in ("Build it.", '"status": "failed"', "Task a, run 2: no compiler", "tests"):
        assert part in prompt
