"""How much a test tries: few things in `make test`, the full number in `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def few_or_all(few: T, full: T) -> list[pytest.ParameterSet]:
    """Two parameters of one test: the few of each run, and all of the slow one."""
    return [pytest.param(few, id="few"), pytest.param(full, id="all", marks=pytest.mark.slow)]


def seeds(values: Iterable[int], *, few: int) -> list[pytest.ParameterSet]:
    """A parameter for each seed; those after the first few are marked slow."""
    return [
        pytest.param(seed, marks=() if number < few else pytest.mark.slow)
        for number, seed in enumerate(values)
    ]
