"""A flow in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.driving import Bench
from tests.engine.flows.changed_flow import Flow


@pytest.fixture
def flow(bench: Bench, tmp_path: Path) -> Flow:
    return Flow(bench, tmp_path)
