"""Budgets of parents and children: what a child uses counts in its parent."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Usage
from app.core.program import Action, Loop, Program, Step
from app.core.records import Grant
from app.sessions.submit import About
from leadhand.models.documents import Budget
from tests.engine.children.test_children import DOCUMENT, PARENT, family
from tests.engine.world import World
from tests.flows import llm
from workers.attempt.settle import park


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def using(cost_usd: float) -> Outcome:
    return Outcome(word="succeeded", usage=Usage(cost_usd=cost_usd, input_tokens=9))


def test_what_a_child_cost_counts_in_its_parent_once(world: World) -> None:
    parent, child = family(world)
    world.settle(child, world.grant(child, "loop~1[1]/do"), using(0.25))
    assert world.engine.queries.session(parent.id).counters.cost_usd == 0
    world.engine.control.apply(child.id, "abort", reason="enough")
    world.engine.outbox.run(f"deliver|{child.member}")
    counters = world.engine.queries.session(parent.id).counters
    assert (counters.cost_usd, counters.input_tokens) == (0.25, 9)
    assert world.engine.fleet.recent_ends().used["cost_micros"] == 250_000
    assert world.engine.queries.steps(parent.id).items[0].cost_usd == 0.25


def family_with(world: World, *body: Step | Loop, **budget: float) -> SessionRef:
    about = About(kind="loop", name="x", budget=Budget.model_validate(budget))
    id_ = world.engine.submit.program(Program(body=body), about).session
    return SessionRef(id_, id_)


def born(world: World, parent: SessionRef, grant: Grant) -> SessionRef:
    assert park(world.engine, world.engine.attempts.work(parent, grant)) is None
    (child,) = world.engine.store.children(parent)
    return SessionRef(child, parent.root)


def test_a_childs_cost_uses_up_its_parents_budget(world: World) -> None:
    then = Step(id="then", action=Action.TOOL)
    parent = family_with(world, *PARENT.body, then, cost_usd=0.2)
    child = born(world, parent, world.grant(parent, "kid"))
    world.settle(child, world.grant(child, "loop~1[1]/do"), using(0.25))
    view = world.engine.queries.session(parent.id)
    assert (view.status, view.reason and view.reason.code) == ("failed", "budget")


def test_a_child_may_use_what_its_parent_has_left(world: World) -> None:
    first = Step(id="first", action=Action.AGENT)
    parent = family_with(world, first, *PARENT.body, cost_usd=1.0, tokens=100)
    answer = world.settle(parent, world.grant(parent, "first"), using(0.75))
    child = born(world, parent, answer.grants[0])
    limits = world.engine.queries.session(child.id).budget
    assert (limits["cost_usd"].limit, limits["tokens"].limit) == (0.25, 91)
    assert limits["steps"].limit == world.engine.settings.budget_steps
    doer = world.grant(child, "loop~1[1]/do")
    assert world.engine.attempts.beat(child, doer, spent=Usage(cost_usd=0.25)).word == "cancel"
    world.engine.attempts.release(child, doer, why="cancel", usage=Usage(cost_usd=0.25))
    reasons = {id_: world.engine.queries.session(id_).reason for id_ in (child.id, parent.id)}
    assert [reason and reason.code for reason in reasons.values()] == ["budget", "budget"]
    assert world.engine.queries.session(parent.id).counters.cost_usd == 1.0


def side_by_side(world: World, **budget: float) -> tuple[SessionRef, list[SessionRef]]:
    """A parent with two active children."""
    kids = [PARENT.body[0].model_copy(update={"id": name, "needs": ()}) for name in ("a", "b")]
    parent = family_with(world, *kids, **budget)
    for kid in kids:
        assert (
            park(world.engine, world.engine.attempts.work(parent, world.grant(parent, kid.id)))
            is None
        )
    children = sorted(world.engine.store.children(parent))
    return parent, [SessionRef(child, parent.root) for child in children]


def test_children_side_by_side_share_what_their_parent_has_left(world: World) -> None:
    parent, (one, other) = side_by_side(world, cost_usd=1.0)
    doers = [world.grant(child, "loop~1[1]/do") for child in (one, other)]
    assert world.engine.attempts.beat(one, doers[0], spent=Usage(cost_usd=0.6)).word == "ok"
    assert world.engine.queries.session(parent.id).counters.cost_usd == 0
    assert world.engine.attempts.beat(other, doers[1], spent=Usage(cost_usd=0.5)).word == "ok"
    world.later(2_000)
    assert world.engine.attempts.beat(one, doers[0], spent=Usage(cost_usd=0.6)).word == "cancel"
    for child, doer in ((one, doers[0]), (other, doers[1])):
        world.engine.attempts.release(child, doer, why="cancel", usage=None)
    world.later(2_000)
    view = world.engine.queries.session(parent.id)
    assert (view.status, view.reason and view.reason.code) == ("failed", "budget")
    assert view.counters.cost_usd == 1.1
    below = ("below/cost_micros", "below/tokens_in")
    fields = world.engine.store.fields(parent)
    assert [fields.get(name, "0") for name in below] == ["0", "0"]


def test_cost_of_children_at_work_calls_a_person_to_their_parent(world: World) -> None:
    parent, children = side_by_side(world, cost_usd=1.0)
    doers = [world.grant(child, "loop~1[1]/do") for child in children]
    world.engine.attempts.beat(children[0], doers[0], spent=Usage(cost_usd=0.5))
    assert parent.id not in {one.session.id for one in world.engine.attention.page().items}
    world.engine.attempts.beat(children[1], doers[1], spent=Usage(cost_usd=0.35))
    found = {one.session.id: one for one in world.engine.attention.page().items}
    assert [need.text for need in found[parent.id].needs] == ["85% of cost_usd is used"]
    assert world.engine.queries.session(parent.id).budget["cost_usd"].used == 0.85


def test_a_child_begun_later_has_what_those_beside_it_left(world: World) -> None:
    kids = [PARENT.body[0].model_copy(update={"id": name, "needs": ()}) for name in ("a", "b")]
    parent = family_with(world, *kids, cost_usd=1.0)
    first = born(world, parent, world.grant(parent, "a"))
    world.engine.attempts.beat(
        first, world.grant(first, "loop~1[1]/do"), spent=Usage(cost_usd=0.75)
    )
    park(world.engine, world.engine.attempts.work(parent, world.grant(parent, "b")))
    (second,) = world.engine.store.children(parent) - {first.id}
    assert world.engine.queries.session(second).budget["cost_usd"].limit == 0.25


def test_what_is_used_deep_below_ends_the_top_at_its_limit(world: World) -> None:
    low: JsonValue = {"steps": [llm()]}
    steps: JsonValue = [{"type": "subflow", "flowNames": ["low"]}]
    document: JsonValue = {"kind": "flow", "name": "mid", "steps": steps, "flows": {"low": low}}
    kid = Step(id="kid", action=Action.CHILD, inputs={"document": document})
    top = family_with(world, kid, cost_usd=0.5)
    middle = born(world, top, world.grant(top, "kid"))
    (address,) = world.engine.store.members(middle, "live")
    bottom = born(world, middle, world.grant(middle, address))
    # Its own limit would end it alone.
    world.engine.control.apply(bottom.id, "stop")
    world.engine.control.apply(bottom.id, "resume", budget=Budget(cost_usd=9.0))
    doer = world.grant(bottom, "llm1")
    assert world.engine.attempts.beat(bottom, doer, spent=Usage(cost_usd=0.25)).word == "ok"
    world.later(2_000)
    assert world.engine.queries.session(top.id).status == "waiting"
    assert world.engine.attempts.beat(bottom, doer, spent=Usage(cost_usd=0.5)).word == "ok"
    world.later(2_000)
    world.later(2_000)
    assert world.engine.attempts.beat(bottom, doer, spent=Usage(cost_usd=0.5)).word == "cancel"
    world.engine.attempts.release(bottom, doer, why="cancel", usage=None)
    world.later(2_000)
    world.later(2_000)
    view = world.engine.queries.session(top.id)
    assert (view.status, view.reason and view.reason.code) == ("failed", "budget")
    assert view.counters.cost_usd == 0.5


def test_a_child_that_may_use_less_than_its_parent_has_left_keeps_its_limit(world: World) -> None:
    assert isinstance(DOCUMENT, dict)
    document: JsonValue = {**DOCUMENT, "budget": {"cost_usd": 0.5}}
    kid = Step(id="kid", action=Action.CHILD, inputs={"document": document})
    parent = family_with(world, kid, cost_usd=2.0)
    child = born(world, parent, world.grant(parent, "kid"))
    assert world.engine.queries.session(child.id).budget["cost_usd"].limit == 0.5
