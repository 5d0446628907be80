"""Child sessions that a body starts: their attempt, their limits, and their parent's end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Program, RetryPolicy, Step
from app.core.records import Grant
from app.errors import InvalidDocument, ParentRests
from app.security.signatures import Caller
from app.sessions.submit import About
from app.sessions.tree import read_tree
from leadhand.contract.submissions import ParentEnd
from leadhand.errors import IdempotencyConflict, TreeLimitReached
from leadhand.models.documents import LoopDocument
from tests.engine.driving import Bench
from tests.engine.test_fsck import audit
from tests.engine.world import World

DO = Step(id="do", action=Action.AGENT, retry=RetryPolicy(retries=1, backoff_s=1, max_backoff_s=1))
PARENT = Program(body=(Loop(id="loop", body=(DO,), max_iterations=2),))
AT = "loop~1[1]/do"
LOST_MS = 40_000


class Body:
    """The body of an attempt: it starts children with its step token."""

    def __init__(self, world: World, ref: SessionRef, address: str = AT) -> None:
        self.world, self.ref = world, ref
        self.grant: Grant = world.grant(ref, address)
        self.caller = Caller(ref.id, address, self.grant.fence, ("spawn",))

    def spawn(self, key: str | None = None, policy: ParentEnd = "abort", **more: Any) -> SessionRef:
        given = {
            "task": "t",
            "baseline": False,
            "checkers": ["true"],
            "doer": {"command": "true"},
            **more,
        }
        document = LoopDocument.model_validate(given)
        spawner = self.world.engine.spawner
        made = spawner.document(self.caller, document, key=key, on_parent_end=policy)
        return SessionRef(made.session, self.ref.root)

    def status(self, ref: SessionRef) -> str:
        return self.world.engine.queries.session(ref.id).status


def begun(bench: Bench, **limits: int) -> tuple[World, SessionRef, Body]:
    """A session whose doer runs."""
    world = World.of(bench)
    limited(world, **limits)
    id_ = world.engine.submit.program(PARENT, About(kind="loop", name="x")).session
    ref = SessionRef(id_, id_)
    return world, ref, Body(world, ref)


def limited(world: World, **limits: int) -> None:
    fields = {f"tree_{name}": limit for name, limit in limits.items()}
    world.engine.spawner._settings = world.engine.settings.model_copy(update=fields)


def refusal(body: Body, *given: Any) -> str:
    """Why a child is refused; a test that plants a fault needs an assertion that fails."""
    try:
        child = body.spawn(*given)
    except (ParentRests, TreeLimitReached) as error:
        return str(error)
    raise AssertionError(f"{child.id} was started")


def deeper(world: World, child: SessionRef) -> Body:
    return Body(world, child)


def require_sound(world: World) -> None:
    assert audit(world.engine.audit.run).items == []


def test_child_of_a_body_is_linked_with_the_attempt_that_started_it(bench: Bench) -> None:
    world, ref, body = begun(bench)
    child = body.spawn()
    view = world.engine.queries.session(child.id)
    assert (view.parent, view.root, view.depth) == (ref.id, ref.id, 1)
    assert world.engine.store.children(ref) == {child.id}
    grandchild = deeper(world, child).spawn()
    assert world.engine.queries.session(grandchild.id).depth == 2
    tree = read_tree(world.engine, ref.id)
    assert [(one.id, one.depth) for one in tree.items] == [
        (ref.id, 0), (child.id, 1), (grandchild.id, 2),
    ]  # fmt: skip
    require_sound(world)


def test_superseded_attempt_starts_no_child(bench: Bench) -> None:
    world, ref, body = begun(bench)
    world.later(LOST_MS)
    Body(world, ref)
    assert "has ended, or its session stops" in refusal(body)
    assert world.engine.store.children(ref) == set()


def test_stopping_session_starts_no_child(bench: Bench) -> None:
    world, ref, body = begun(bench)
    world.engine.control.apply(ref.id, "stop")
    assert "has ended, or its session stops" in refusal(body)


def test_same_document_or_key_is_the_same_child_within_an_attempt(bench: Bench) -> None:
    world, ref, body = begun(bench)
    first = body.spawn()
    assert body.spawn() == first
    second = body.spawn("second")
    assert second != first
    assert body.spawn("second") == second
    with pytest.raises(IdempotencyConflict):
        body.spawn("second", task="another")
    world.later(LOST_MS)
    again = Body(world, ref)
    assert again.spawn() != first
    assert again.spawn("second") != second


def test_tree_is_no_deeper_than_its_limit(bench: Bench) -> None:
    world, _, body = begun(bench, depth=2)
    child = body.spawn()
    grandchild = deeper(world, child).spawn()
    assert "nested deeper than 2" in refusal(deeper(world, grandchild))


def test_session_has_no_more_children_than_its_limit(bench: Bench) -> None:
    world, ref, body = begun(bench, children=2)
    first = body.spawn("1")
    body.spawn("2")
    assert "has 2 child sessions already" in refusal(body, "3")
    assert body.spawn("1") == first
    assert len(world.engine.store.children(ref)) == 2


def test_tree_has_no_more_sessions_than_its_limit(bench: Bench) -> None:
    world, _, body = begun(bench, sessions=3)
    child = body.spawn("1")
    deeper(world, child).spawn()
    assert "has 3 sessions already" in refusal(body, "2")


def test_lost_attempt_loses_its_children_but_those_that_are_let_go_on(bench: Bench) -> None:
    world, ref, body = begun(bench)
    aborted, kept = body.spawn("a"), body.spawn("b", "let-go-on")
    world.later(LOST_MS)
    world.later(1_000)
    assert (body.status(aborted), body.status(kept)) == ("aborted", "active")
    again = Body(world, ref)
    assert again.spawn("b", "let-go-on") == kept
    assert again.spawn("a") != aborted
    require_sound(world)


def test_failed_attempt_loses_its_children(bench: Bench) -> None:
    world, ref, body = begun(bench)
    child = body.spawn()
    world.settle(ref, body.grant, Outcome(word="failed", text="no", retryable=True))
    world.later(100)
    assert world.engine.queries.session(ref.id).status == "active"
    assert body.status(child) == "aborted"


def test_exit_of_a_child_reaches_the_attempt_that_took_it_over(bench: Bench) -> None:
    world, ref, body = begun(bench)
    child = body.spawn("b", "let-go-on")
    world.later(LOST_MS)
    again = Body(world, ref)
    again.spawn("b", "let-go-on")
    world.engine.control.apply(child.id, "exit", reason="no way")
    world.settle(ref, again.grant)
    view = world.engine.queries.session(ref.id)
    assert view.status == "exited"
    assert view.reason is not None
    assert view.reason.root.text == "no way"


def test_superseded_attempt_takes_no_child_over(bench: Bench) -> None:
    world, ref, body = begun(bench)
    child = body.spawn("b", "let-go-on")
    world.later(LOST_MS)
    again = Body(world, ref)
    again.spawn("b", "let-go-on")
    assert "has ended, or its session stops" in refusal(body, "b", "let-go-on")
    parent = json.loads(world.engine.store.fields(child)["parent"])
    assert parent["fence"] == again.grant.fence


@pytest.mark.parametrize("end", ["settled", "abort"])
def test_child_that_is_let_go_on_outlives_its_parent(bench: Bench, end: str) -> None:
    outlives(bench, end)


def test_child_is_detached_at_the_end_of_its_parent(bench: Bench) -> None:
    outlives(bench, "settled")


def outlives(bench: Bench, end: str) -> None:
    world, ref, body = begun(bench)
    aborted, kept = body.spawn("a"), body.spawn("b", "let-go-on")
    if end == "abort":
        world.engine.control.apply(ref.id, "abort")
        world.engine.attempts.release(ref, body.grant, why="cancel")
    else:
        world.settle(ref, body.grant)
        world.settle(ref, world.grant(ref, "loop~1[2]/do"))
    world.later(1_000)
    assert world.engine.queries.session(ref.id).ended
    assert (body.status(aborted), body.status(kept)) == ("aborted", "active")
    view = world.engine.queries.session(kept.id)
    assert (view.parent, view.detached_from, view.depth) == (None, ref.id, 1)
    assert world.engine.store.children(ref) == {aborted.id}
    shown = {one.id: one.detached_from for one in read_tree(world.engine, ref.id).items}
    assert shown == {ref.id: None, aborted.id: None, kept.id: ref.id}
    require_sound(world)
    world.turn(kept, 1, "accept", check="check.true")
    assert body.status(kept) == "completed"
    require_sound(world)


def test_stop_that_is_queued_for_a_child_does_not_reach_it_once_it_is_detached(
    bench: Bench,
) -> None:
    world, ref, body = begun(bench)
    kept = body.spawn("b", "let-go-on")
    deliver = world.engine.transitions.deliver
    world.engine.transitions.deliver = lambda _: None
    world.engine.control.apply(ref.id, "stop")
    world.engine.control.apply(ref.id, "abort")
    world.engine.attempts.release(ref, body.grant, why="cancel")
    world.engine.transitions.deliver = deliver
    assert world.engine.store.errand_score(f"stop|{kept.member}") is None
    world.later(5_000)
    assert world.engine.queries.session(ref.id).status == "aborted"
    assert body.status(kept) == "active"
    for verb in ("stop", "abort"):  # a sweeper had read it before
        queued = f"{verb}|{kept.member}"
        bench.redis.zadd(bench.store.keys.everywhere("errands"), {queued: world.now})
        world.engine.outbox.run(queued)
        assert body.status(kept) == "active"
        assert world.engine.store.errand_score(queued) is None


def test_child_takes_the_rest_of_the_budget_that_it_asked_for_along(bench: Bench) -> None:
    world, ref, body = begun(bench)
    kept = body.spawn("b", "let-go-on", budget={"cost_usd": 5})
    body.spawn("c", "let-go-on")
    used = Outcome.model_validate({"word": "succeeded", "usage": {"cost_usd": 2}})
    world.settle(kept, world.grant(kept, AT), used)
    world.engine.control.apply(ref.id, "abort")
    world.engine.attempts.release(ref, body.grant, why="cancel")
    lines = world.engine.queries.session(ref.id).budget["cost_usd"]
    assert (lines.used, lines.limit) == (2.0, 997.0)
    own = world.engine.queries.session(kept.id).budget["cost_usd"]
    assert (own.used, own.limit) == (2.0, 5.0)


def test_document_of_a_body_names_no_receiver(bench: Bench) -> None:
    _, _, body = begun(bench)
    with pytest.raises(InvalidDocument, match="a child session has none"):
        body.spawn(webhook={"url": "https://receiver.example/"})
