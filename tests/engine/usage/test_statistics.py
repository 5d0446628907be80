"""Statistics: each end of a session, loop and check counts once, and so does what attempts used."""

from __future__ import annotations

from datetime import date

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import CheckRun, Outcome, Usage
from app.fleet.overview import read_statistics
from app.sessions.submit import About
from app.store.store import connect
from leadhand.models.views.fleet import StatisticsView
from tests.engine.world import LOOP, World

DAY_MS = 86_400_000
RETRY = Outcome(word="succeeded", verdict="retry")
ACCEPT = Outcome(word="succeeded", verdict="accept")


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def begin(world: World, kind: str = "loop", name: str = "a task") -> SessionRef:
    id_ = world.engine.submit.program(LOOP, About(kind=kind, name=name)).session
    return SessionRef(id_, id_)


def read(world: World) -> StatisticsView:
    return read_statistics(world.engine.store, date(1970, 1, 1), date(1970, 1, 10))


def turn(world: World, ref: SessionRef, iteration: int, verdict: Outcome, cost: float = 0) -> None:
    used = Usage(cost_usd=cost, input_tokens=10, output_tokens=2) if cost else None
    block = f"loop~1[{iteration}]"
    world.settle(ref, world.grant(ref, f"{block}/do"), Outcome(word="succeeded", usage=used))
    (judge,) = world.settle(ref, world.grant(ref, f"{block}/check"), verdict).grants
    world.settle(ref, judge, verdict)


def test_a_loop_that_is_accepted_in_its_second_iteration(world: World) -> None:
    ref = begin(world)
    turn(world, ref, 1, RETRY, cost=0.1)
    turn(world, ref, 2, ACCEPT, cost=0.2)
    found = read(world)
    assert [(s.kind, s.name, s.status, s.count) for s in found.sessions] == [
        ("loop", "", "completed", 1)
    ]
    assert [(one.verdict, one.iterations, one.count) for one in found.loops] == [("accept", 2, 1)]
    assert [(c.verdict, c.count) for c in found.checks] == [("accept", 1), ("retry", 1)]
    rates = [(one.iteration, one.reached, one.accepted, one.rate) for one in found.acceptance]
    assert rates == [(1, 1, 0, 0), (2, 1, 1, 1)]
    (used,), (day,) = found.usage, found.days
    assert (used.input_tokens, used.output_tokens) == (20, 4)
    assert [used.cost_usd, day.cost_usd, found.cost_per_completed_usd] == pytest.approx([0.3] * 3)
    assert day.ended == {"completed": 1}


def test_an_outcome_that_arrives_twice_counts_once(world: World) -> None:
    ref = begin(world)
    world.settle(ref, world.grant(ref, "loop~1[1]/do"), Outcome(word="succeeded"))
    check = world.grant(ref, "loop~1[1]/check")
    world.settle(ref, check, RETRY)
    world.settle(ref, check, RETRY)
    assert [(c.verdict, c.count) for c in read(world).checks] == [("retry", 1)]


@pytest.mark.parametrize(("ends", "counted"), [("FP", "retry"), ("FPF", "flaky"), ("FFF", "retry")])
def test_check_counts_as_flaky_if_it_failed_passed_and_failed(world: World, ends, counted) -> None:
    ref = begin(world)
    world.settle(ref, world.grant(ref, "loop~1[1]/do"), Outcome(word="succeeded"))
    runs = tuple(CheckRun(verdict="retry" if end == "F" else "accept") for end in ends)
    outcome = RETRY.model_copy(update={"runs": runs, "flaky": ()})
    world.settle(ref, world.grant(ref, "loop~1[1]/check"), outcome)
    assert [(c.verdict, c.count) for c in read(world).checks] == [(counted, 1)]


def test_days_are_by_utc_and_a_period_holds_its_days_only(world: World) -> None:
    turn(world, begin(world), 1, ACCEPT)
    world.later(DAY_MS)
    turn(world, begin(world), 1, ACCEPT)
    assert [day.day for day in read(world).days] == ["1970-01-01", "1970-01-02"]
    only = read_statistics(world.engine.store, date(1970, 1, 2), date(1970, 1, 2))
    assert [s.count for s in only.sessions] == [1]


def test_flows_count_by_name_and_tasks_do_not(world: World) -> None:
    for number in range(2):
        turn(world, begin(world, "flow", f"flow {number}"), 1, ACCEPT)
        turn(world, begin(world, "loop", f"task {number}"), 1, ACCEPT)
    counted = {(s.kind, s.name): s.count for s in read(world).sessions}
    assert counted == {("flow", "flow 0"): 1, ("flow", "flow 1"): 1, ("loop", ""): 2}


def test_names_past_the_limit_of_a_day_count_as_other(world: World, store_url: str) -> None:
    key = world.engine.store.keys.named("stats", "0")
    turn(world, begin(world, "flow", "first"), 1, ACCEPT)
    connect(store_url).hset(key, mapping={f"n{number}": 1 for number in range(4000)})
    turn(world, begin(world, "flow", "second"), 1, ACCEPT)
    turn(world, begin(world, "flow", "first"), 1, ACCEPT)
    counted = {s.name: s.count for s in read(world).sessions}
    assert counted == {"first": 2, "other": 1}


def test_statistics_outlive_the_session(world: World, store_url: str) -> None:
    ref = begin(world)
    turn(world, ref, 1, ACCEPT)
    world.engine.deletion.delete(ref.id)
    assert [s.count for s in read(world).sessions] == [1]
    key = world.engine.store.keys.named("stats", "0")
    assert 0 < connect(store_url).ttl(key) <= 400 * 86_400


def test_the_audit_knows_the_keys_of_statistics(world: World) -> None:
    turn(world, begin(world), 1, ACCEPT)
    assert world.engine.audit.run().items == []
