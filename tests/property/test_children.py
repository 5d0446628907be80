"""Child sessions: their end reaches their parent, and nobody waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue

from app.engine import About
from app.keys import SessionRef
from app.outcomes import Outcome, Usage
from app.program import Action, Loop, Program, Step
from app.records import Grant
from leadhand.documents import Budget, LoopDocument
from tests.flows import llm
from tests.property.world import World
from workers.parking import LOOK_MS, park

DOCUMENT: JsonValue = {
    "kind": "loop",
    "task": "t",
    "checkers": [{"command": "true"}],
    "doer": {"command": "true"},
}
PARENT = Program(body=(Step(id="kid", action=Action.CHILD, inputs={"document": DOCUMENT}),))


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def family(world: World) -> tuple[SessionRef, SessionRef]:
    """A parent whose step waits for its child."""
    id_ = world.engine.start(PARENT, About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    assert park(world.engine, world.engine.work(parent, world.grant(parent, "kid"))) is None
    (child,) = world.engine.store.children(parent)
    return parent, SessionRef(child, id_)


def test_a_childs_end_is_its_parents_outcome(world: World) -> None:
    parent, child = family(world)
    assert world.engine.session(parent.id).status == "waiting"
    world.turn(child, 1, "accept", check="check.true")
    assert world.engine.session(parent.id).status == "completed"


def test_an_end_that_was_not_delivered_is_seen_by_the_sweep(world: World) -> None:
    parent, child = family(world)
    errand = world.engine.transitions.errand
    world.engine.transitions.errand = lambda _: None
    world.turn(child, 1, "accept", check="check.true")
    assert world.engine.session(parent.id).status == "waiting"
    world.engine.transitions.errand = errand
    world.later(1_000)
    assert world.engine.session(parent.id).status == "completed"


def test_an_errand_of_a_newer_version_stays_for_whoever_knows_it(world: World) -> None:
    parent, child = family(world)
    errands = world.engine.store.keys.everywhere("errands")
    newer = f"bless|{child.member}"
    world.engine.store._redis.zadd(errands, {newer: world.now})
    world.engine.control(parent.id, "stop")
    world.later(1_000)
    assert world.engine.session(child.id).status == "stopped"
    due = world.engine.store._redis.zscore(errands, newer)
    assert due is not None
    assert due > world.now


def test_a_child_that_was_deleted_fails_its_parents_step(world: World) -> None:
    parent, child = family(world)
    world.engine.store._redis.delete(world.engine.store.keys.part(child, "session"))
    world.later(LOOK_MS + 1_000)
    view = world.engine.session(parent.id)
    assert view.status == "failed"
    assert view.reason is not None
    assert "deleted before it ended" in view.reason.text


@pytest.mark.parametrize("stopped", [True, False])
def test_who_waits_for_a_child_is_told_that_it_was_deleted(world: World, stopped: bool) -> None:
    parent, child = family(world)
    if stopped:
        world.engine.control(child.id, "stop")
        assert world.engine.session(parent.id).status == "waiting"
    world.engine.delete(child.id, force=True)
    assert child.id not in world.engine.store.children(parent)
    view = world.engine.session(parent.id)
    assert view.status == "failed"
    assert view.reason is not None
    assert ("deleted before it ended" if stopped else "is aborted") in view.reason.text


def test_a_child_that_was_aborted_is_not_said_to_have_failed(world: World) -> None:
    kid = PARENT.body[0].model_copy(update={"critical": False, "label": "k"})
    id_ = world.engine.start(Program(body=(kid,)), About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    assert park(world.engine, world.engine.work(parent, world.grant(parent, "kid"))) is None
    (child,) = world.engine.store.children(parent)
    world.engine.control(child, "abort")
    world.later(1_000)
    told = world.engine.session(parent.id).warnings
    assert told == [f"k was passed over: child session {child} is aborted"]


def test_a_stopped_parent_stops_its_child_and_takes_it_along_when_resumed(world: World) -> None:
    parent, child = family(world)
    world.engine.control(parent.id, "stop")
    world.later(1_000)
    assert world.engine.session(child.id).status == "stopped"
    world.engine.control(parent.id, "resume")
    world.later(1_000)
    assert world.engine.session(child.id).status == "active"
    world.turn(child, 1, "accept", check="check.true")
    assert world.engine.session(parent.id).status == "completed"


def test_a_stop_that_comes_late_leaves_the_child_of_a_resumed_parent_alone(world: World) -> None:
    _, child = family(world)
    world.engine.run_errand(f"stop|{child.member}")
    assert world.engine.session(child.id).status == "active"


def test_a_child_that_a_user_stopped_keeps_its_parent_waiting(world: World) -> None:
    parent, child = family(world)
    world.engine.control(child.id, "stop")
    world.later(LOOK_MS + 1_000)
    assert world.engine.session(parent.id).status == "waiting"
    world.engine.control(child.id, "resume")
    world.turn(child, 1, "accept", check="check.true")
    assert world.engine.session(parent.id).status == "completed"


def test_a_stop_is_acknowledged_when_the_whole_tree_has_stopped(world: World) -> None:
    parent, child = family(world)
    grant = world.grant(child, "loop~1[1]/do")
    world.engine.control(parent.id, "stop")
    world.later(1_000)
    assert world.engine.session(parent.id).status == "stopping"
    assert world.claim(child, "loop~1[1]/do").why != "granted"
    world.engine.release(child, grant, why="stop")
    assert world.engine.session(child.id).status == "stopped"
    assert world.engine.session(parent.id).status == "stopped"


def test_an_abort_is_acknowledged_when_the_whole_tree_has_ended(world: World) -> None:
    parent, child = family(world)
    grant = world.grant(child, "loop~1[1]/do")
    assert world.engine.control(parent.id, "abort").status == "aborting"
    assert world.engine.session(child.id).status == "aborting"
    world.engine.release(child, grant, why="cancel")
    assert world.engine.session(child.id).status == "aborted"
    assert world.engine.session(parent.id).status == "aborted"


def test_a_stale_resume_leaves_the_child_of_a_stopped_parent_alone(world: World) -> None:
    parent, child = family(world)
    world.engine.control(parent.id, "stop")
    world.later(1_000)
    errands = world.engine.store.keys.everywhere("errands")
    world.engine.store._redis.zadd(errands, {f"resume|{child.member}": world.now})
    world.later(1_000)
    assert world.engine.session(child.id).status == "stopped"


def test_a_child_that_failed_is_not_run_anew_when_its_parent_is_resumed(world: World) -> None:
    kid = Step(id="kid", action=Action.CHILD, inputs={"document": DOCUMENT}, critical=False)
    wait = Step(id="wait", action=Action.WAIT, inputs={"seconds": 600})
    id_ = world.engine.start(Program(body=(kid, wait)), About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    park(world.engine, world.engine.work(parent, world.grant(parent, "kid")))
    (id_,) = world.engine.store.children(parent)
    child = SessionRef(id_, parent.root)
    grant = world.grant(child, "loop~1[1]/do")
    world.settle(child, grant, Outcome(word="failed", retryable=False))
    assert world.engine.session(child.id).status == "failed"
    world.engine.control(parent.id, "stop")
    world.engine.control(parent.id, "resume")
    world.later(2_000)
    assert world.engine.session(child.id).status == "failed"


@pytest.mark.parametrize("verb", ["abort", "exit"])
def test_a_child_that_failed_stays_so_when_its_parent_ends(world: World, verb: Any) -> None:
    kid = Step(id="kid", action=Action.CHILD, inputs={"document": DOCUMENT}, critical=False)
    wait = Step(id="wait", action=Action.WAIT, inputs={"seconds": 600})
    id_ = world.engine.start(Program(body=(kid, wait)), About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    park(world.engine, world.engine.work(parent, world.grant(parent, "kid")))
    (id_,) = world.engine.store.children(parent)
    child = SessionRef(id_, parent.root)
    grant = world.grant(child, "loop~1[1]/do")
    world.settle(child, grant, Outcome(word="failed", retryable=False))
    world.engine.control(parent.id, verb)
    world.later(2_000)
    assert world.engine.session(parent.id).status in ("aborted", "exited")
    assert world.engine.session(child.id).status == "failed"


def test_a_child_that_a_user_stopped_stays_so_when_its_parent_is_resumed(world: World) -> None:
    parent, child = family(world)
    world.engine.control(child.id, "stop", reason="not now")
    world.engine.control(parent.id, "stop")
    world.engine.control(parent.id, "resume")
    world.later(2_000)
    assert world.engine.session(child.id).status == "stopped"


def test_a_child_of_a_lost_attempt_ends_when_its_step_runs_anew(world: World) -> None:
    nodes = (Step(id="a", action=Action.TOOL), Step(id="b", action=Action.TOOL), *PARENT.body)
    id_ = world.engine.start(Program(body=nodes), About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    world.settle(parent, world.grant(parent, "a"))
    (kid,) = world.settle(parent, world.grant(parent, "b")).grants
    work = world.engine.work(parent, kid)
    above: dict[str, JsonValue] = {"session": id_, "address": "kid", "fence": work.grant.fence,
             "base": world.engine.store.keys.base(parent)}  # fmt: skip
    document = LoopDocument.model_validate(DOCUMENT)
    child = world.engine.submit(document, root=id_, parent=above).session
    world.engine.release(parent, work.grant, why="drain")
    world.engine.control(id_, "stop")
    world.later(2_000)
    world.engine.control(id_, "resume", after="a")
    world.later(2_000)
    assert world.engine.session(child).status == "aborted"
    assert world.engine.store.members(parent, "live") == ["b~2"]


def begun_by_a_doer(world: World) -> tuple[SessionRef, Grant, SessionRef]:
    """A session whose doer runs, its attempt, and the session that the doer began."""
    body = (Step(id="a", action=Action.AGENT), Step(id="b", action=Action.AGENT))
    id_ = world.engine.start(Program(body=body), About(kind="loop", name="x")).session
    ref = SessionRef(id_, id_)
    grant = world.grant(ref, "a")
    above: dict[str, JsonValue] = {"session": id_, "address": "a", "fence": grant.fence,
             "base": world.engine.store.keys.base(ref)}  # fmt: skip
    document = LoopDocument.model_validate(DOCUMENT)
    child = world.engine.submit(document, root=id_, parent=above).session
    return ref, grant, SessionRef(child, id_)


def test_an_exit_of_what_a_doer_began_is_an_exit_of_its_session_too(world: World) -> None:
    parent, doer, child = begun_by_a_doer(world)
    world.engine.control(child.id, "exit", reason="redesign it")
    assert world.engine.beat(parent, doer).word == "ok", "it has a moment to finish"
    world.later(4_000)
    assert world.engine.beat(parent, doer).word == "cancel"
    world.engine.release(parent, doer, why="cancel")
    view = world.engine.session(parent.id)
    assert view.status == "exited"
    assert view.reason is not None
    assert (view.reason.code, view.reason.at) == ("exit", "a")
    assert view.reason.root.text == "redesign it"


@pytest.mark.parametrize("verb", ["stop", "abort"])
def test_any_other_end_of_what_a_doer_began_is_the_doer_s_to_read(world: World, verb: Any) -> None:
    parent, doer, child = begun_by_a_doer(world)
    world.engine.control(child.id, verb)
    world.later(4_000)
    assert world.engine.beat(parent, doer).word == "ok"
    assert world.engine.session(parent.id).status == "active"


def test_an_exit_that_comes_after_its_doer_ends_nothing(world: World) -> None:
    parent, doer, child = begun_by_a_doer(world)
    world.settle(parent, doer)
    world.engine.control(child.id, "exit")
    world.later(4_000)
    assert world.engine.session(parent.id).status == "active"


def test_an_exit_of_a_subflow_is_no_exit_of_its_flow(world: World) -> None:
    """Also where it comes before its step has begun to wait for it."""
    after = Step(id="b", action=Action.AGENT)
    kid = PARENT.body[0].model_copy(update={"critical": False})
    id_ = world.engine.start(Program(body=(kid, after)), About(kind="loop", name="x")).session
    ref = SessionRef(id_, id_)
    work = world.engine.work(ref, world.grant(ref, "kid"))
    above: dict[str, JsonValue] = {"session": id_, "address": "kid", "fence": work.grant.fence,
             "base": world.engine.store.keys.base(ref)}  # fmt: skip
    document = LoopDocument.model_validate(DOCUMENT)
    child = world.engine.submit(
        document, idempotency_key=f"{id_}:kid", root=id_, parent=above
    ).session
    world.engine.control(child, "exit")
    ended = park(world.engine, work)
    assert ended is not None
    world.settle(ref, work.grant, ended)
    assert world.engine.session(id_).status == "active"


def using(cost_usd: float) -> Outcome:
    return Outcome(word="succeeded", usage=Usage(cost_usd=cost_usd, input_tokens=9))


def test_what_a_child_cost_counts_in_its_parent_once(world: World) -> None:
    parent, child = family(world)
    world.settle(child, world.grant(child, "loop~1[1]/do"), using(0.25))
    assert world.engine.session(parent.id).counters.cost_usd == 0
    world.engine.control(child.id, "abort", reason="enough")
    world.engine.run_errand(f"deliver|{child.member}")
    counters = world.engine.session(parent.id).counters
    assert (counters.cost_usd, counters.input_tokens) == (0.25, 9)
    assert world.engine.watch.lately().used["cost_micros"] == 250_000
    assert world.engine.steps(parent.id).items[0].cost_usd == 0.25


def family_with(world: World, *body: Step | Loop, **budget: float) -> SessionRef:
    about = About(kind="loop", name="x", budget=Budget.model_validate(budget))
    id_ = world.engine.start(Program(body=body), about).session
    return SessionRef(id_, id_)


def born(world: World, parent: SessionRef, grant: Grant) -> SessionRef:
    assert park(world.engine, world.engine.work(parent, grant)) is None
    (child,) = world.engine.store.children(parent)
    return SessionRef(child, parent.root)


def test_a_childs_cost_uses_up_its_parents_budget(world: World) -> None:
    then = Step(id="then", action=Action.TOOL)
    parent = family_with(world, *PARENT.body, then, cost_usd=0.2)
    child = born(world, parent, world.grant(parent, "kid"))
    world.settle(child, world.grant(child, "loop~1[1]/do"), using(0.25))
    view = world.engine.session(parent.id)
    assert (view.status, view.reason and view.reason.code.value) == ("failed", "budget")


def test_a_child_may_use_what_its_parent_has_left(world: World) -> None:
    first = Step(id="first", action=Action.AGENT)
    parent = family_with(world, first, *PARENT.body, cost_usd=1.0, tokens=100)
    answer = world.settle(parent, world.grant(parent, "first"), using(0.75))
    child = born(world, parent, answer.grants[0])
    limits = world.engine.session(child.id).budget
    assert (limits["cost_usd"].limit, limits["tokens"].limit) == (0.25, 91)
    assert limits["steps"].limit == world.engine.settings.budget_steps
    doer = world.grant(child, "loop~1[1]/do")
    assert world.engine.beat(child, doer, spent=Usage(cost_usd=0.25)).word == "cancel"
    world.engine.release(child, doer, why="cancel", usage=Usage(cost_usd=0.25))
    reasons = {id_: world.engine.session(id_).reason for id_ in (child.id, parent.id)}
    assert [reason and reason.code.value for reason in reasons.values()] == ["budget", "budget"]
    assert world.engine.session(parent.id).counters.cost_usd == 1.0


def side_by_side(world: World, **budget: float) -> tuple[SessionRef, list[SessionRef]]:
    """A parent with two children at work."""
    kids = [PARENT.body[0].model_copy(update={"id": name, "needs": ()}) for name in ("a", "b")]
    parent = family_with(world, *kids, **budget)
    for kid in kids:
        assert park(world.engine, world.engine.work(parent, world.grant(parent, kid.id))) is None
    children = sorted(world.engine.store.children(parent))
    return parent, [SessionRef(child, parent.root) for child in children]


def test_children_side_by_side_share_what_their_parent_has_left(world: World) -> None:
    parent, (one, other) = side_by_side(world, cost_usd=1.0)
    doers = [world.grant(child, "loop~1[1]/do") for child in (one, other)]
    assert world.engine.beat(one, doers[0], spent=Usage(cost_usd=0.6)).word == "ok"
    assert world.engine.session(parent.id).counters.cost_usd == 0
    assert world.engine.beat(other, doers[1], spent=Usage(cost_usd=0.5)).word == "ok"
    world.later(2_000)
    assert world.engine.beat(one, doers[0], spent=Usage(cost_usd=0.6)).word == "cancel"
    for child, doer in ((one, doers[0]), (other, doers[1])):
        world.engine.release(child, doer, why="cancel", usage=None)
    world.later(2_000)
    view = world.engine.session(parent.id)
    assert (view.status, view.reason and view.reason.code.value) == ("failed", "budget")
    assert view.counters.cost_usd == 1.1
    below = ("below/cost_micros", "below/tokens_in")
    fields = world.engine.store.fields(parent)
    assert [fields.get(name, "0") for name in below] == ["0", "0"]


def test_a_child_begun_later_has_what_those_beside_it_left(world: World) -> None:
    kids = [PARENT.body[0].model_copy(update={"id": name, "needs": ()}) for name in ("a", "b")]
    parent = family_with(world, *kids, cost_usd=1.0)
    first = born(world, parent, world.grant(parent, "a"))
    world.engine.beat(first, world.grant(first, "loop~1[1]/do"), spent=Usage(cost_usd=0.75))
    park(world.engine, world.engine.work(parent, world.grant(parent, "b")))
    (second,) = world.engine.store.children(parent) - {first.id}
    assert world.engine.session(second).budget["cost_usd"].limit == 0.25


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
    world.engine.control(bottom.id, "stop")
    world.engine.control(bottom.id, "resume", budget=Budget(cost_usd=9.0))
    doer = world.grant(bottom, "llm1")
    assert world.engine.beat(bottom, doer, spent=Usage(cost_usd=0.25)).word == "ok"
    world.later(2_000)
    assert world.engine.session(top.id).status == "waiting"
    assert world.engine.beat(bottom, doer, spent=Usage(cost_usd=0.5)).word == "ok"
    world.later(2_000)
    world.later(2_000)
    assert world.engine.beat(bottom, doer, spent=Usage(cost_usd=0.5)).word == "cancel"
    world.engine.release(bottom, doer, why="cancel", usage=None)
    world.later(2_000)
    world.later(2_000)
    view = world.engine.session(top.id)
    assert (view.status, view.reason and view.reason.code.value) == ("failed", "budget")
    assert view.counters.cost_usd == 0.5


def test_a_child_that_may_use_less_than_its_parent_has_left_keeps_its_limit(world: World) -> None:
    assert isinstance(DOCUMENT, dict)
    document: JsonValue = {**DOCUMENT, "budget": {"cost_usd": 0.5}}
    kid = Step(id="kid", action=Action.CHILD, inputs={"document": document})
    parent = family_with(world, kid, cost_usd=2.0)
    child = born(world, parent, world.grant(parent, "kid"))
    assert world.engine.session(child.id).budget["cost_usd"].limit == 0.5


def test_a_question_stands_in_the_transcript_when_it_is_asked(world: World) -> None:
    ask = Step(id="ask", action=Action.HUMAN, timeout_s=60, inputs={"question": "May I?"})
    id_ = world.engine.start(Program(body=(ask,)), About(kind="loop", name="x")).session
    ref = SessionRef(id_, id_)
    assert park(world.engine, world.engine.work(ref, world.grant(ref, "ask"))) is None

    def said() -> list[str]:
        page = world.engine.transcript(id_, limit=10, cursor=None)
        return [entry.text for entry in page.items]

    assert said() == ["May I?"]
    world.later(61_000)
    assert world.engine.session(id_).status == "failed"
    assert said() == ["May I?", "failed: nobody answered in time"]
