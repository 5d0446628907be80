"""How many workflow sessions a stack keeps, and how many a page reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app import stacks
from leadhand.errors import WorkflowUnknown
from tests.engine.driving import Bench
from tests.engine.stacks.test_stacks import ANY, call, session, start
from tests.engine.test_fsck import audit
from tests.engine.world import World

#: The most workflow sessions of a stack that have left it.
KEPT = 200


@pytest.fixture
def world(bench: Bench) -> Iterator[World]:
    world = World.of(bench)
    yield world
    assert audit(world.engine.audit.run).items == []


def test_of_those_that_have_left_a_stack_the_newest_are_kept(world: World) -> None:
    def kept() -> list[str]:
        return [
            one.session_id for one in stacks.list_workflows(world.engine, "s", ANY, limit=500).items
        ]

    def end() -> str:
        id_ = start(world)
        stacks.complete(world.engine, call())
        return id_

    below = start(world, "below")
    ended = [end() for _ in range(KEPT)]
    assert kept() == [*reversed(ended), below]
    ended += [end() for _ in range(2)]
    assert kept() == [*reversed(ended[2:]), below]
    with pytest.raises(WorkflowUnknown):
        stacks.read_workflow(world.engine, "s", ended[1])
    assert session(stacks.complete(world.engine, call())).session_id == below, (
        "the one that has just left stays"
    )
    assert kept() == [*reversed(ended[3:]), below]
    # One that is replaced leaves the stack, too, and the one that replaces it stays.
    active = start(world, "active")
    assert session(stacks.load(world.engine, call(ended[3]), force=True)).session_id == ended[3]
    assert kept() == [active, *reversed(ended[3:]), below]
    last = end()
    assert kept() == [last, active, *reversed(ended[3:])]


def test_a_page_reads_as_many_records_as_it_shows(bench: Bench, world: World) -> None:
    for _ in range(5):
        start(world)

    def reads() -> int:
        return int(bench.redis.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"])

    before = reads()
    page = stacks.list_workflows(world.engine, "s", ANY, limit=1)
    assert (len(page.items), page.next is not None) == (1, True)
    assert reads() - before == 1


def test_a_change_of_any_stack_takes_two_calls(bench: Bench, world: World) -> None:
    def calls() -> int:
        stats = bench.redis.info("commandstats")
        names = ("cmdstat_fcall", "cmdstat_evalsha")
        return sum(stats[name]["calls"] for name in names if name in stats)

    for depth in (1, 20):
        while stacks.read_stack(world.engine, "s").depth < depth:
            start(world)
        before = calls()
        stacks.record_quality_attempt(world.engine, call(), "x")
        assert calls() - before == 2
