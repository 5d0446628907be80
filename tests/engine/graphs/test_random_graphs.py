"""Random graphs under random faults end as a second, small interpreter says."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.effort import few_or_all
from tests.engine.driving import Bench
from tests.engine.graphs.graph_schedule import Schedule, VerbSchedule
from tests.engine.graphs.random_graphs import random_graph

#: Graphs in each run of the tests, and in the slow one.
FEW, MANY = 15, 2_100
#: Graphs among which each planted fault shows.
TELLING = range(25, 30)


def run_graphs(bench: Bench, seeds: Iterable[int], schedule: type[Schedule] = Schedule) -> None:
    """Run a graph of each seed to its end, and compare it with the reference."""
    for seed in seeds:
        bench.restart()
        graph, acts = random_graph(seed)
        try:
            schedule(bench, graph, acts, seed).run()
        except AssertionError as error:
            raise AssertionError(f"graph {seed}: {error}") from error


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seeds", few_or_all(range(FEW), range(FEW, MANY)))
def test_random_graphs_end_as_the_reference_says(bench: Bench, seeds: range) -> None:
    run_graphs(bench, seeds)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seeds", few_or_all(range(6), range(6, 400)))
def test_skips_and_forks_end_as_the_reference_says(bench: Bench, seeds: range) -> None:
    run_graphs(bench, seeds, VerbSchedule)


def test_a_few_graphs_notice_a_fault(bench: Bench) -> None:
    run_graphs(bench, TELLING)
