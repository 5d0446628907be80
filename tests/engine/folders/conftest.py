"""Fixtures of tests of working folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.folders.sessions import Sessions


@pytest.fixture
def sessions(store_url: str, tmp_path: Path) -> Iterator[Sessions]:
    sessions = Sessions(store_url, tmp_path)
    yield sessions
    sessions.attempts.close()
