"""Faults planted in the scripts and in modules of app, each of which the suite must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from inspect import isfunction, signature
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from app.core import routing
from app.store.store import connect
from tests.engine.driving import Bench
from tests.model.faults import FAULTS, Fault, noticed
from tests.model.walking import walk

#: How many walks a fault may survive; most fall in the first few.
WALKS = 300
TESTS = Path(__file__).resolve().parents[1]
#: Where the tests are that notice a fault by a program written by hand.
BY_HAND = (*TESTS.glob("engine/**/test_*.py"), *TESTS.glob("model/**/test_*.py"))


def planted(fault: Fault, url: str, patch: pytest.MonkeyPatch) -> Bench:
    """A bench whose engine has this fault."""
    assert fault.text().count(fault.old) == 1, f"{fault.file} must have {fault.old!r} once"
    if not fault.file.endswith(".py"):
        return Bench(connect(url), read=fault.read)
    faulty: Any = fault.module()
    for name, function in vars(import_module(faulty.__name__)).items():
        if isfunction(function) and function.__module__ == faulty.__name__:
            patch.setattr(function, "__code__", getattr(faulty, name).__code__)
    return Bench(connect(url))


def by_walking(bench: Bench, first: int) -> Iterator[Callable[[], Any]]:
    others = (seed for seed in range(WALKS) if seed != first)
    return (partial(walk, bench, seed) for seed in chain((first,), others))


def find_test(name: str) -> Callable[..., Any]:
    """Returns the test of this name, which is in one file only."""
    (file,) = [file for file in BY_HAND if f"\ndef {name}(" in file.read_text(encoding="utf-8")]
    module = ".".join(file.relative_to(TESTS.parent).with_suffix("").parts)
    test: Callable[..., Any] = getattr(import_module(module), name)
    return test


def by_program(bench: Bench, test: str, folder: Path) -> Iterator[Callable[[], Any]]:
    named = find_test(test)
    yield (
        partial(named, bench, folder)
        if "tmp_path" in signature(named).parameters
        else partial(named, bench)
    )


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_planted_fault_is_noticed(
    fault: Fault, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bench = planted(fault, redis_url, monkeypatch)
    if fault.found_by == "walk":
        tries = by_walking(bench, fault.seed)
    else:
        tries = by_program(bench, fault.found_by, tmp_path)
    assert noticed(tries), f"it survived: {fault.name}"


def test_anchor_of_each_fault_is_in_its_file_once():
    """The faults are planted in `make faults` only; a renamed anchor fails here at once."""
    counts = {(fault.file, fault.old): fault.text().count(fault.old) for fault in FAULTS}
    assert {anchor: count for anchor, count in counts.items() if count != 1} == {}


@pytest.mark.parametrize("name", sorted({f.found_by for f in FAULTS} - {"walk"}))
def test_the_test_that_notices_a_fault_exists(name: str):
    assert callable(find_test(name))


def test_what_is_as_it_should_be_raises_no_alarm(bench: Bench):
    assert bench.routes is routing.routes
    assert not noticed(partial(walk, bench, seed) for seed in range(10))
