"""The contract of a loop as Markdown."""

from __future__ import annotations

import pytest

from leadhand import generate_contract, loop

WHOLE = """Make the tests pass

# Phase

green

# Dependencies

- 0.1

# Prior Phase Results

**red**: 3 tests fail

---

**plan**: slugify first

# File Scope

- `src/`

# Verification

- pytest tests/"""


def test_a_contract_has_a_section_for_each_thing_that_is_given() -> None:
    assert (
        generate_contract(
            " Make the tests pass\n",
            phase="green",
            depends_on=["0.1"],
            prior_results={"red": "3 tests fail", "empty": " ", "plan": "slugify first"},
            file_scope=["src/"],
            verify=["pytest tests/"],
        )
        == WHOLE
    )


def test_results_without_names_are_quoted_as_they_are() -> None:
    contract = generate_contract("t", prior_results=["one", "", "two"])
    assert contract == "t\n\n# Prior Phase Results\n\none\n\n---\n\ntwo"


def test_a_contract_without_a_task_is_refused() -> None:
    with pytest.raises(ValueError, match="task is empty"):
        generate_contract("  ")
    with pytest.raises(TypeError, match="prior_results"):
        generate_contract("t", prior_results="one")


def test_the_helpers_of_a_loop_are_beside_it() -> None:
    names = {"generate_contract", "save_exit_reason", "load_exit_reason", "poll"}
    assert names <= set(loop.__all__)
    assert all(callable(getattr(loop, name)) for name in names)
