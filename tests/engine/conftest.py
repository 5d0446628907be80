"""Fixtures of the engine tests: an empty server, and a clock that only tests move."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.engine.driving import Bench

#: `pytest tests/model --hypothesis-profile=thorough` looks for minutes instead of seconds.
settings.register_profile("thorough")


@pytest.fixture(scope="session")
def bench_of_worker(redis_url: str) -> Bench:
    return Bench.at(redis_url)


@pytest.fixture
def bench(bench_of_worker: Bench) -> Bench:
    """The one bench of this test process, swept clean."""
    bench_of_worker.restart()
    return bench_of_worker
