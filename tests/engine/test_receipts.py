"""Receipts of stop and abort: the attempts that they affected, child sessions included."""

from __future__ import annotations

import pytest

from app.sessions.evidence import read_receipt
from tests.engine.children.test_children import family
from tests.engine.world import World


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def test_a_receipt_names_what_ran_below_and_what_became_of_it(world: World) -> None:
    parent, child = family(world)
    assert read_receipt(world.engine, parent.id).control is None
    grant = world.grant(child, "loop~1[1]/do")
    world.engine.control.apply(parent.id, "stop")
    world.later(1_000)  # the stop reaches the child
    told = read_receipt(world.engine, parent.id)
    assert (told.control, told.status, told.done) == ("stop", "stopping", False)
    (met,) = told.items
    assert (met.session, met.address, met.became) == (child.id, "loop~1[1]/do", "running")
    world.engine.attempts.release(child, grant, why="stop")
    world.later(1_000)  # the report reaches the parent
    told = read_receipt(world.engine, parent.id)
    assert (told.status, told.done) == ("stopped", True)
    assert [(met.session, met.worker, met.became) for met in told.items] == [
        (child.id, "w", "released")
    ]


def test_what_ended_before_or_began_after_a_stop_is_not_on_its_receipt(world: World) -> None:
    _, session = family(world)
    world.settle(session, world.grant(session, "loop~1[1]/do"))
    world.engine.control.apply(session.id, "stop")
    assert read_receipt(world.engine, session.id).items == []
    world.engine.control.apply(session.id, "resume")
    world.grant(session, "loop~1[1]/check.true")
    told = read_receipt(world.engine, session.id)
    assert (told.control, told.status, told.items) == ("stop", "active", [])


def test_an_outcome_that_was_under_way_counts_and_is_on_the_receipt(world: World) -> None:
    _, session = family(world)
    grant = world.grant(session, "loop~1[1]/do")
    world.engine.control.apply(session.id, "stop")
    world.settle(session, grant)
    (met,) = read_receipt(world.engine, session.id).items
    assert met.became == "settled"
