"""Finishing a step costs the same at the end of a long session as at its beginning."""

from __future__ import annotations

import pytest

from benchmarks.cost import CASES, measure


@pytest.mark.parametrize("case", CASES)
def test_the_last_steps_cost_no_more_than_the_first(case: str, store_url: str) -> None:
    cost = measure(store_url, CASES[case], sample=40)
    assert cost.steps >= 800
    assert cost.last.commands <= cost.first.commands + 2
    assert cost.last.bytes <= cost.first.bytes * 1.06


def test_a_finished_tool_step_keeps_less_than_two_kilobytes(store_url: str) -> None:
    cost = measure(store_url, CASES["1000 items"], sample=40)
    assert cost.memory_per_step < 2000
