"""Random graphs that are imported into another store at each stop end as the reference says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from app.operations.submission.imports import ImportSessions, Origin
from app.store import imports
from tests.effort import few_or_all
from tests.engine.driving import Bench
from tests.engine.graphs.graph_schedule import _WEIGHTS, Schedule
from tests.engine.graphs.random_graphs import random_graph
from tests.engine.test_fsck import audit
from tests.engine.world import World


class MovingSchedule(Schedule):
    """A schedule whose session comes to another store with each stop; that was empty before."""

    forks = (0,)

    def __init__(self, url: str, *given: Any) -> None:
        super().__init__(*given)
        self._urls = [url.removesuffix("/0") + "/2", url]
        self.moves = 0

    def _resume(self) -> None:
        new = World(self._urls[self.moves % 2], secret=f"secret {self.moves}")
        new.engine.store._redis.flushdb()
        new.now = self.world.now
        engine = new.engine
        origin = Origin(self.engine.store, self.engine.registry, Path("/nowhere"), is_own=True)
        move = ImportSessions(origin, engine.store, engine.registry, engine.settings)
        assert move.import_tree(self.id) == {self.id: "imported"}
        assert audit(engine.audit.run).items == []
        self.world, self.engine = new, engine
        self.moves += 1
        super()._resume()


def run_graphs(url: str, bench: Bench, seeds: Iterable[int]) -> int:
    """Run a graph of each seed to its end; returns how often one was imported."""
    moves = 0
    for seed in seeds:
        bench.restart()
        schedule = MovingSchedule(url, World.of(bench), random_graph(seed), seed)
        try:
            schedule.run()
        except AssertionError as error:
            raise AssertionError(f"graph {seed}: {error}") from error
        moves += schedule.moves
    return moves


@pytest.fixture(autouse=True)
def many_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_WEIGHTS, "stop", 14)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seeds", few_or_all(range(6), range(6, 300)))
def test_imported_graphs_end_as_the_reference_says(
    bench: Bench, redis_url: str, seeds: range
) -> None:
    assert run_graphs(redis_url, bench, seeds) > len(seeds)


#: What random graphs miss at once, and after many of them.
SOON, LATER = ("live", "runs", "out", "widths"), ("items", "arrived")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "part", [*SOON, *(pytest.param(one, marks=pytest.mark.slow) for one in LATER)]
)
def test_a_part_that_is_not_copied_is_noticed(
    bench: Bench, redis_url: str, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(imports, "PARTS", tuple(one for one in imports.PARTS if one != part))
    with pytest.raises(Exception, match=r"."):
        run_graphs(redis_url, bench, range(40))
