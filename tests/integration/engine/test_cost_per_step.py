"""Finishing a step costs the same at the end of a long session as at its beginning."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import programs
from benchmarks.cost import CASES, measure
from benchmarks.stretch import stretch

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=pytest.mark.slow if c == "1000 items" else ()) for c in CASES],
)
def test_the_last_steps_cost_no_more_than_the_first(case: str, store_url: str) -> None:
    cost = measure(store_url, CASES[case], sample=40)
    assert cost.steps >= 800
    assert cost.last.commands <= cost.first.commands + 2
    assert cost.last.bytes <= cost.first.bytes * 1.06


@pytest.mark.slow
def test_a_finished_tool_step_keeps_less_than_two_kilobytes(store_url: str) -> None:
    cost = measure(store_url, CASES["1000 items"], sample=40)
    assert cost.memory_per_step < 2000


def test_a_quick_step_takes_one_round_trip(store_url: str, tmp_path: Path) -> None:
    """What released it has claimed it and knows its inputs: it is one script call."""
    spent = stretch(store_url, tmp_path, sessions=4)
    assert spent.round_trips <= 1.5  # the claim and what a worker reads of a session are shared
    assert spent.scripts <= 1.2
    assert spent.commands <= 34
    assert spent.bytes <= 2000


def test_a_quick_step_takes_few_function_calls(store_url: str, tmp_path: Path) -> None:
    """Their number does not depend on the load of the machine; submits are counted too."""

    def count_calls(sessions: int) -> int:
        calls = 0

        def count(_frame: object, event: str, _value: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            stretch(store_url, tmp_path, sessions=sessions)
        finally:
            sys.setprofile(None)
        return calls

    count_calls(1)  # fills the caches
    few = count_calls(2)
    assert (count_calls(12) - few) / 100 <= 340


def test_a_step_costs_the_same_whatever_stands_beside_it(store_url: str, tmp_path: Path) -> None:
    few = stretch(store_url, tmp_path, sessions=5)
    many = stretch(store_url, tmp_path, sessions=5, beside=200)
    assert many.commands <= few.commands * 1.02
    assert many.bytes <= few.bytes * 1.05


def test_items_in_line_take_neither_a_claim_nor_a_message_each(
    store_url: str, tmp_path: Path
) -> None:
    spent = stretch(store_url, tmp_path, sessions=1, program=programs.fan_out(200))
    assert spent.scripts <= 1.3
    assert spent.hints <= 0.3


@pytest.mark.parametrize("module", ["", programs.SAFE])
def test_a_loop_of_quick_checks_is_one_message(store_url: str, tmp_path: Path, module: str) -> None:
    """The checks are functions of the folder, or tools: they are settled together."""
    (tmp_path / "checks.py").write_text(programs.CHECKS)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / f"{programs.SAFE}.py").write_text(programs.TOOLS)
    program = programs.loop(quick=True, module=module)
    spent = stretch(store_url, tmp_path, sessions=1, program=program)
    assert spent.hints * 15 <= 1
    assert spent.round_trips <= 1.1
