"""Random graphs under random faults and verbs end as a small reference interpreter says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests import effort
from tests.engine.driving import Bench
from tests.engine.graphs.graph_schedule import Schedule
from tests.engine.graphs.random_graphs import random_graph
from tests.engine.world import World

#: 2,000 graphs, in chunks for processes that run side by side.
CHUNKS, GRAPHS = 20, 100
#: Graphs among which each planted fault shows.
TELLING = range(100)

#: How often each kind of event happens at least in each chunk: half as often as usual, or less.
AT_LEAST = {
    "failure": 80, "retry": 50, "timeout": 25, "critical failure": 50,
    "failure of a step that is not critical": 15,
    "kill": 40, "late report": 15, "late report of a step that another has": 1,
    "lost message": 20, "stop": 30,
    "resume after a stop": 12, "resume after a failure": 20, "resume after a step": 10,
    "retry of a step": 10,
    "skip of a step to come": 25, "skip of a failed step": 20,
    "skip by a condition": 30, "skip by a join": 10, "skip of an item": 1,
    "fork": 30, "fork with another input": 12, "fork with another tool": 4,
    "last step at a stop": 4, "last step at a failure": 12,
    "beside another": 100, "list with a limit": 12,
}  # fmt: skip


def run_graphs(bench: Bench, seeds: Iterable[int]) -> Counter[str]:
    """Compare a graph of each seed with the reference; returns how often each event happened."""
    bench.restart()
    world = World.of(bench)
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            schedule = Schedule(world, random_graph(seed), seed)
            schedule.run()
        except AssertionError as error:
            raise AssertionError(f"graph {seed}: {error}") from error
        seen += schedule.seen
    return seen


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", effort.seeds(range(CHUNKS), few=1))
def test_random_graphs_end_as_the_reference_says(bench: Bench, chunk: int) -> None:
    seen = run_graphs(bench, range(chunk * GRAPHS, (chunk + 1) * GRAPHS))
    rare = {kind: seen[kind] for kind, least in AT_LEAST.items() if seen[kind] < least}
    assert not rare, f"these happen too seldom: {rare}"


def test_a_few_graphs_notice_a_fault(bench: Bench) -> None:
    run_graphs(bench, TELLING)
