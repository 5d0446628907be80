"""Order of steps: sequences, joins and names, run step by step through the real scripts."""

from __future__ import annotations

import pytest

from tests.engine.driving import (
    Bench,
    program,
    step,
)


def test_sequence_releases_one_step_after_the_other(bench: Bench):
    drive = bench.start(program(step("a"), step("b"), step("c")))
    assert drive.live == {"a"}
    assert [hint.address for hint in drive.do("a").hints] == ["b"]
    assert drive.live == {"b"}
    drive.do("b")
    assert drive.do("c").ended == "completed"
    assert drive.counters()["steps"] == 3
    drive.ended_well()


def test_diamond_joins_once_both_sides_arrived(bench: Bench):
    drive = bench.start(
        program(step("a"), step("b"), step("c", needs=("a",)), step("d", needs=("b", "c")))
    )
    drive.do("a")
    assert drive.live == {"b", "c"}
    assert drive.do("c").hints == ()
    assert drive.live == {"b"}
    assert [hint.address for hint in drive.do("b").hints] == ["d"]
    drive.do("d")
    drive.ended_well()


def test_session_ends_only_when_every_open_end_arrived(bench: Bench):
    drive = bench.start(program(step("a", needs=()), step("b", needs=()), step("c", needs=())))
    assert drive.live == {"a", "b", "c"}
    assert drive.do("b").ended is None
    assert drive.do("a").ended is None
    assert drive.do("c").ended == "completed"
    drive.ended_well()


@pytest.mark.parametrize(
    "names", [("a", "ab", "a.b", "a-b", "a_b"), ("A", "a", "a.1", "a1", "a.10")]
)
def test_names_that_begin_alike_are_told_apart(bench: Bench, names: tuple[str, ...]):
    roots = [step(name, needs=()) for name in names]
    joins = [step(f"{name}.join", needs=names) for name in names]
    drive = bench.start(program(*roots, *joins))
    for name in names[:-1]:
        assert drive.do(name).hints == ()
    assert len(drive.do(names[-1]).hints) == len(names)
    for name in names:
        drive.do(f"{name}.join")
    drive.ended_well()


def test_node_may_be_called_document(bench: Bench):
    drive = bench.start(program(step("document"), step("next")))
    assert drive.bench.store.program(drive.program.hash) == drive.program.model_dump_json()
    drive.do("document")
    drive.do("next")
    drive.ended_well()
