"""The contracts that agents read."""

from __future__ import annotations

from workers.agents.prompts import PAST_LIMIT, QUOTE_LIMIT, checker_prompt, doer_prompt
from workers.inputs import CheckInputs, DoerInputs


def test_a_task_alone_is_the_whole_prompt() -> None:
    nothing = {"work": None, "feedback": None}
    given = DoerInputs.model_validate({"task": "Fix it.", "previous": nothing, "prior": []})
    assert doer_prompt(given) == "Fix it.\n"


def test_a_doer_is_told_all_it_must_know() -> None:
    given = DoerInputs.model_validate(
        {
            "task": "Make the tests green.",
            "iteration": 2,
            "max_iterations": 3,
            "file_scope": ["src/", "tests/a.py"],
            "verify": ["pytest -q"],
            "previous": {"work": "I renamed it.", "feedback": "test_b fails"},
            "prior": [
                {"name": "red", "verdict": "accept", "text": "wrote tests"},
                {"name": "empty", "verdict": "accept", "text": " "},
                {"name": "plan", "verdict": "max_iterations", "text": "half a plan"},
            ],
        }
    )
    assert (
        doer_prompt(given)
        == """Make the tests green.

# Prior Phase Results

**red**: wrote tests

---

**plan** (max_iterations): half a plan

# File Scope

- `src/`
- `tests/a.py`

# Verification

- pytest -q

# Previous Attempt

Iteration 1 of 3 was not accepted. Mend what the checker names, and keep what was good.

## Previous Summary

I renamed it.

## Checker Feedback

test_b fails
"""
    )


def test_what_is_quoted_is_bounded_and_the_task_is_not() -> None:
    long = "x" * 100_000
    previous = {"work": long, "feedback": long}
    prior = [{"name": "a", "text": long}]
    given = DoerInputs.model_validate({"task": long, "previous": previous, "prior": prior})
    assert len(long) < len(doer_prompt(given)) < len(long) + 3 * QUOTE_LIMIT + 1_000


def test_a_checker_is_told_role_criteria_output_and_history() -> None:
    given = CheckInputs.model_validate(
        {
            "checker": {"prompt": "All tests pass."},
            "task": "Make it work.",
            "work": "It works now.",
            "iteration": 3,
            "history": [
                {"iteration": 1, "verdict": "retry", "feedback": "y" * 500},
                {"iteration": 2, "verdict": "retry", "feedback": None},
            ],
        }
    )
    prompt = checker_prompt(given)
    titles = [line for line in prompt.splitlines() if line.startswith("# ")]
    assert titles == [
        "# Role",
        "# Criteria",
        "# Task",
        "# Doer Output",
        "# Iteration",
        "# Prior Iterations",
        "# Verdict",
    ]
    assert "All tests pass." in prompt
    assert "It works now." in prompt
    assert f"- Iteration 1: retry: {'y' * PAST_LIMIT}\n" in prompt
    assert "- Iteration 2: retry: (no feedback)" in prompt


def test_a_first_check_of_silent_work_has_no_history() -> None:
    given = CheckInputs.model_validate({"checker": {"prompt": "?"}, "work": None, "history": None})
    assert "# Prior Iterations" not in checker_prompt(given)
    assert "# Doer Output\n\n(none)" in checker_prompt(given)
