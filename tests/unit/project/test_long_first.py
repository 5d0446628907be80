"""The order of a test run: each worker begins with its share of the long tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.long_first import SECONDS, long_first, seconds_of

TESTS = Path(__file__).resolve().parents[2]


class Item(NamedTuple):
    nodeid: str


def collected(short: int) -> list[Item]:
    """Short tests, and among them all that are listed as long."""
    long = [Item(f"tests/{file}::{name}[few]") for file, name in SECONDS]
    return [*(Item(f"tests/unit/test_a.py::test_{n}") for n in range(short)), *long]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_each_worker_begins_with_long_tests(workers: int) -> None:
    items = collected(short=1000)
    ordered = long_first(items, workers)
    assert Counter(ordered) == Counter(items)
    begin, sums = 0, []
    for number in range(workers):
        end = begin + (len(items) - begin) // (workers - number)
        times = [seconds_of(item) for item in ordered[begin:end]]
        assert times == sorted(times, reverse=True)
        sums.append(sum(times))
        begin = end
    assert max(sums) - min(sums) <= max(SECONDS.values())


def test_short_tests_keep_their_order() -> None:
    items = collected(short=50)
    short = [item for item in long_first(items, 3) if not seconds_of(item)]
    assert short == items[:50]


@pytest.mark.parametrize(("workers", "short"), [(3, 0), (30, 5), (3, 1)])
def test_no_test_is_lost_when_there_are_few(workers: int, short: int) -> None:
    items = collected(short)
    assert Counter(long_first(items, workers)) == Counter(items)


def test_tests_that_are_listed_as_long_exist() -> None:
    for file, name in SECONDS:
        assert f"\ndef {name}(" in (TESTS / file).read_text(encoding="utf-8"), name


def test_each_nightly_test_exists() -> None:
    lines = (TESTS / "nightly.txt").read_text().splitlines()
    named = [line.partition("[")[0].partition("::") for line in lines if not line.startswith("#")]
    assert [
        (file, name) for file, _, name in named if f"def {name}(" not in (TESTS / file).read_text()
    ] == []
