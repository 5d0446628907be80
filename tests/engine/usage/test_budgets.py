"""Budgets and usage: how they are shown, and how a budget is raised."""

from __future__ import annotations

from typing import Literal

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Usage
from app.sessions.submit import About
from leadhand.errors import ControlRefused
from leadhand.models.documents import Budget
from tests.engine.world import LOOP, World

FREE = Outcome(word="succeeded")
RETRY = Outcome(word="succeeded", verdict="retry")


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def begun(world: World, **budget: float) -> SessionRef:
    about = About(kind="loop", name="x", budget=Budget.model_validate(budget))
    id_ = world.engine.submit.program(LOOP, about).session
    return SessionRef(id_, id_)


def paid(cost_usd: float) -> Outcome:
    return Outcome(
        word="succeeded", usage=Usage(cost_usd=cost_usd, input_tokens=10, output_tokens=2)
    )


def test_cost_is_shown_of_step_iteration_and_session(world: World) -> None:
    ref = begun(world)
    world.settle(ref, world.grant(ref, "loop~1[1]/do"), paid(0.1))
    (judge,) = world.settle(ref, world.grant(ref, "loop~1[1]/check"), paid(0.02)).grants
    world.settle(ref, judge, Outcome(word="succeeded", verdict="accept"))
    result = world.engine.queries.result(ref.id)
    assert (result.cost_usd, result.input_tokens, result.output_tokens) == (0.12, 20, 4)
    (entry,) = result.history
    assert (entry.cost_usd, entry.input_tokens, entry.output_tokens) == (0.12, 20, 4)
    told = [e.fields for e in world.engine.queries.events(ref.id) if e.type == "step.settled"]
    assert [fields.get("cost_usd") for fields in told] == [0.1, 0.02, None]
    assert told[0]["input_tokens"] == 10
    costs = {step.address: step.cost_usd for step in world.engine.queries.steps(ref.id).items}
    assert costs["loop~1[1]/do"] == 0.1
    assert costs["loop~1[1]/judge"] == 0


def test_an_iteration_without_cost_says_none(world: World) -> None:
    ref = begun(world)
    world.turn(ref, 1, "accept")
    (entry,) = world.engine.queries.ledger(ref.id).items
    assert (entry.cost_usd, entry.input_tokens) == (None, 0)


def test_what_still_ran_when_its_loop_ended_is_in_the_ledger(world: World) -> None:
    ref = begun(world)
    world.settle(ref, world.grant(ref, "loop~1[1]/do"), paid(0.1))
    check = world.grant(ref, "loop~1[1]/check")
    world.engine.control.apply(ref.id, "exit", reason="enough")
    (entry,) = world.engine.queries.ledger(ref.id).items
    assert (entry.verdict, entry.cost_usd) == ("exit", 0.1)
    world.settle(ref, check, paid(0.02))
    (amended,) = world.engine.queries.ledger(ref.id).items
    told = {"cost_usd": 0.12, "input_tokens": 20, "output_tokens": 4}
    assert amended == entry.model_copy(update=told)
    assert world.engine.queries.session(ref.id).counters.cost_usd == 0.12


def test_a_cost_cap_ends_a_running_attempt_by_its_next_heartbeat(world: World) -> None:
    ref = begun(world, cost_usd=0.5)
    doer = world.grant(ref, "loop~1[1]/do")
    assert world.engine.attempts.beat(ref, doer, spent=Usage(cost_usd=0.4)).word == "ok"
    assert world.engine.attempts.beat(ref, doer, spent=Usage(cost_usd=0.6)).word == "cancel"
    world.engine.attempts.release(ref, doer, why="cancel", usage=Usage(cost_usd=0.65))
    view = world.engine.queries.session(ref.id)
    assert (view.status, view.counters.cost_usd) == ("failed", 0.65)
    assert view.reason is not None
    assert view.reason.code == "budget"
    assert view.reason.text == "its budget is used up: 0.6000 of 0.5000 USD"
    assert view.budget["cost_usd"].limit == 0.5


def test_a_lost_attempt_costs_what_it_told(world: World) -> None:
    ref = begun(world)
    doer = world.grant(ref, "loop~1[1]/do")
    world.engine.attempts.beat(ref, doer, spent=Usage(cost_usd=0.4))
    world.later(31_000)
    again = world.grant(ref, "loop~1[1]/do")
    assert world.settle(ref, again, paid(0.3)).word == "settled"
    assert world.engine.queries.session(ref.id).counters.cost_usd == 0.7


def read(tokens: int, wrote: int = 0) -> Usage:
    return Usage(input_tokens=tokens, output_tokens=wrote)


def test_a_token_cap_ends_a_running_attempt_by_its_next_heartbeat(world: World) -> None:
    ref = begun(world, tokens=100)
    doer = world.grant(ref, "loop~1[1]/do")
    assert world.engine.attempts.beat(ref, doer, spent=read(60, 20)).word == "ok"
    assert world.engine.attempts.beat(ref, doer, spent=read(60, 20)).word == "ok", (
        "the same counts once"
    )
    assert world.engine.queries.session(ref.id).counters.input_tokens == 60
    assert world.engine.attempts.beat(ref, doer, spent=read(70, 30)).word == "cancel"
    world.engine.attempts.release(ref, doer, why="cancel", usage=read(75, 31))
    view = world.engine.queries.session(ref.id)
    assert (view.status, view.counters.input_tokens, view.counters.output_tokens) == (
        "failed", 75, 31,
    )  # fmt: skip
    assert view.reason is not None
    assert view.reason.text == "its budget is used up: 100 of 100 tokens"


def test_tokens_that_heartbeats_told_are_not_counted_again(world: World) -> None:
    ref = begun(world)
    doer = world.grant(ref, "loop~1[1]/do")
    world.engine.attempts.beat(ref, doer, spent=read(30, 5))
    world.engine.attempts.beat(ref, doer, spent=read(20, 6))
    world.settle(ref, doer, Outcome(word="succeeded", usage=read(40, 6)))
    counters = world.engine.queries.session(ref.id).counters
    assert (counters.input_tokens, counters.output_tokens) == (40, 6)
    steps = {step.address: step for step in world.engine.queries.steps(ref.id).items}
    assert steps["loop~1[1]/do"].input_tokens == 40


def test_a_lost_attempt_used_the_tokens_that_it_told_of(world: World) -> None:
    ref = begun(world)
    doer = world.grant(ref, "loop~1[1]/do")
    world.engine.attempts.beat(ref, doer, spent=read(30, 5))
    world.later(31_000)
    world.settle(ref, world.grant(ref, "loop~1[1]/do"), Outcome(word="succeeded", usage=read(7)))
    assert world.engine.queries.session(ref.id).counters.input_tokens == 37


def test_a_budget_that_is_used_up_must_be_raised_to_go_on(world: World) -> None:
    ref = begun(world, iterations=1)
    world.settle(ref, world.grant(ref, "loop~1[1]/do"))
    (judge,) = world.settle(ref, world.grant(ref, "loop~1[1]/check"), FREE).grants
    world.settle(ref, judge, RETRY)
    assert world.engine.queries.session(ref.id).status == "failed"
    with pytest.raises(ControlRefused, match=r"budget.iterations is used up \(1 of 1 iterations\)"):
        world.engine.control.apply(ref.id, "resume")
    with pytest.raises(ControlRefused, match="iterations"):
        world.engine.control.apply(ref.id, "resume", budget=Budget(steps=500))
    view = world.engine.control.apply(ref.id, "resume", budget=Budget(iterations=2))
    assert view.status == "active"
    assert view.budget["iterations"].limit == 2
    world.settle(ref, world.grant(ref, "loop~2[1]/do"))
    (judge,) = world.settle(ref, world.grant(ref, "loop~2[1]/check"), FREE).grants
    world.settle(ref, judge, RETRY)
    assert [entry.verdict for entry in world.engine.queries.ledger(ref.id).items] == [
        "retry",
        "retry",
    ]
    assert world.engine.queries.session(ref.id).status == "failed"


def test_time_over_ends_the_session_and_stopped_time_does_not_count(world: World) -> None:
    ref = begun(world, wall_s=100)
    world.later(60_000)
    world.engine.control.apply(ref.id, "stop")
    world.later(600_000)
    assert world.engine.queries.session(ref.id).budget["wall_s"].used == 60
    assert world.engine.control.apply(ref.id, "resume").status == "active"
    world.later(39_000)
    assert world.engine.queries.session(ref.id).status == "active"
    world.later(2_000)
    view = world.engine.queries.session(ref.id)
    assert view.reason is not None
    assert view.reason.text == "its budget is used up: 100.0 of 100.0 s"


def test_settings_limit_what_a_document_leaves_open(world: World) -> None:
    budget = world.engine.queries.session(begun(world, steps=7).id).budget
    assert (budget["steps"].limit, budget["iterations"].limit) == (7, 10_000)
    assert budget.keys() == {
        "iterations",
        "steps",
        "wall_s",
        "cost_usd",
        "tokens",
        "stage_stops",
        "stops",
    }


def judge_run(
    world: World, ref: SessionRef, run: int, verdict: Literal["accept", "terminate"]
) -> None:
    world.settle(ref, world.grant(ref, f"loop~{run}[1]/do"))
    (judge,) = world.settle(ref, world.grant(ref, f"loop~{run}[1]/check"), FREE).grants
    world.settle(ref, judge, Outcome(word="succeeded", verdict=verdict))


def test_stops_call_for_a_person_from_80_percent_on(world: World) -> None:
    ref = begun(world, stops=5, stage_stops=50)
    for run in range(1, 5):
        judge_run(world, ref, run, "terminate")
        world.engine.control.apply(ref.id, "resume")
        needs = [need.text for one in world.engine.attention.page().items for need in one.needs]
        assert needs == (["80% of stops is used"] if run == 4 else [])


def test_a_stage_whose_circuit_is_open_runs_no_more_until_its_limit_is_raised(world: World) -> None:
    ref = begun(world, stage_stops=2)
    judge_run(world, ref, 1, "terminate")
    assert world.engine.queries.session(ref.id).counters.stops == 1
    world.engine.control.apply(ref.id, "resume")
    judge_run(world, ref, 2, "terminate")
    view = world.engine.queries.session(ref.id)
    assert (view.status, view.counters.stops, view.progress.nodes[0].stops) == ("failed", 2, 2)
    assert view.reason is not None
    assert [link.code for link in view.reason.chain()] == ["circuit_open", "terminated"]
    assert view.reason.text == "no further run of loop is begun: 2 of 2 stops of one stage"
    refusal = r"budget.stage_stops is used up \(2 of 2 stops of one stage\); raise it"
    with pytest.raises(ControlRefused, match=refusal):
        world.engine.control.apply(ref.id, "resume")
    assert (
        f"leadhand resume {ref.id} --max-stage-stops 4"
        in world.engine.explainer.explain(ref.id).next
    )
    view = world.engine.control.apply(ref.id, "resume", budget=Budget(stage_stops=4))
    assert (view.status, view.counters.stops) == ("active", 2)
    assert (view.budget["stage_stops"].used, view.budget["stage_stops"].limit) == (2, 4)
    judge_run(world, ref, 3, "accept")
    assert world.engine.queries.session(ref.id).status == "completed"


def test_stops_are_limited_by_default(world: World) -> None:
    budget = world.engine.queries.session(begun(world).id).budget
    assert (budget["stage_stops"].limit, budget["stops"].limit) == (5, 15)
