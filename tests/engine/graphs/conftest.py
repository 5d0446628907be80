"""The graph that a test drives by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.driving import Bench
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.world import World


@pytest.fixture
def make(bench: Bench) -> Callable[..., GraphWorld]:
    def graph(*steps: dict[str, object], **more: object) -> GraphWorld:
        return GraphWorld(World.of(bench), steps, **more)

    return graph
