"""What `make fuzz` asks of the probe of the served API."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--api-seed", help="make up requests by this seed, not the same each time")
    parser.addoption("--api-examples", default="60", help="requests of each kind, with a seed")
    parser.addoption("--api-paths", default="/", help="the paths of these, a regular expression")
