"""A world whose sessions work at the place `here`."""

from __future__ import annotations

import pytest

from tests.engine.world import World


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)
