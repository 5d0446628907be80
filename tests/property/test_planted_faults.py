"""Faults planted in the scripts and in decide.py, each of which the suite must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from app import decide
from app.store import connect
from tests.property import (
    test_adopting,
    test_answers,
    test_ceilings,
    test_clock_steps_back,
    test_decisions,
    test_engine_programs,
    test_full_store,
    test_left_alone,
    test_locks,
    test_rewinding,
    test_routes_kept,
    test_shared_folders,
    test_turns_and_children,
)
from tests.property.driving import Bench
from tests.property.faults import FAULTS, Fault, noticed
from tests.property.walking import walk

#: How many walks a fault may survive; most fall in the first few.
WALKS = 300
#: Where the programs written by hand are.
BY_HAND = (
    test_adopting, test_answers, test_ceilings, test_clock_steps_back, test_decisions,
    test_engine_programs, test_full_store, test_left_alone, test_locks, test_rewinding,
    test_routes_kept, test_shared_folders, test_turns_and_children,
)  # fmt: skip


def planted(fault: Fault, url: str) -> Bench:
    """A bench whose engine has this fault."""
    assert fault.text().count(fault.old) == 1, f"{fault.file} no longer says {fault.old!r}"
    if fault.file.endswith(".py"):
        faulty: Any = fault.decide()
        return Bench(connect(url), routes=faulty.routes, anew=faulty.run_anew)
    return Bench(connect(url), read=fault.read)


def by_walking(bench: Bench, first: int) -> Iterator[Callable[[], Any]]:
    others = (seed for seed in range(WALKS) if seed != first)
    return (partial(walk, bench, seed) for seed in chain((first,), others))


def by_program(bench: Bench, test: str, folder: Path) -> Iterator[Callable[[], Any]]:
    named = next(getattr(module, test) for module in BY_HAND if hasattr(module, test))
    yield (
        partial(named, bench, folder)
        if "tmp_path" in signature(named).parameters
        else partial(named, bench)
    )


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_planted_fault_is_noticed(fault: Fault, redis_url: str, tmp_path: Path):
    bench = planted(fault, redis_url)
    if fault.found_by == "walk":
        tries = by_walking(bench, fault.seed)
    else:
        tries = by_program(bench, fault.found_by, tmp_path)
    assert noticed(tries), f"it survived: {fault.name}"


def test_what_is_as_it_should_be_raises_no_alarm(bench: Bench):
    assert bench.routes is decide.routes
    assert not noticed(partial(walk, bench, seed) for seed in range(25))
