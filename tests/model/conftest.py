"""The fixtures of the engine's tests, for the random walks beside the model."""

from __future__ import annotations

from tests.engine.conftest import bench, bench_of_worker

__all__ = ["bench", "bench_of_worker"]
