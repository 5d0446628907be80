"""Children whose parent has ended or is gone: they bring nothing of it back, and go in time."""

from __future__ import annotations

import pytest
from pydantic import JsonValue
from redis import Redis

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Usage
from app.core.program import Action, Program, Step
from app.sessions.submit import About
from leadhand.models.documents import LoopDocument
from tests.engine.children.test_children import DOCUMENT
from tests.engine.driving import Bench
from tests.engine.test_fsck import audit
from tests.engine.world import World
from workers.attempt.settle import park

DO = "loop~1[1]/do"


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def begun_by_a_doer(world: World) -> tuple[SessionRef, SessionRef]:
    """A parent that has completed, and a child that its doer began and did not wait for."""
    program = Program(body=(Step(id="a", action=Action.AGENT),))
    id_ = world.engine.submit.program(program, About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    grant = world.grant(parent, "a")
    base = world.engine.store.keys.base(parent)
    above: dict[str, JsonValue] = {
        "session": id_,
        "address": "a",
        "fence": grant.fence,
        "base": base,
    }
    document = LoopDocument.model_validate(DOCUMENT)
    child = world.engine.submit.document(
        document, idempotency_key="kid", root=id_, parent=above
    ).session
    errand = world.engine.transitions.deliver
    world.engine.transitions.deliver = lambda _: None  # its abort comes late
    world.settle(parent, grant)
    world.engine.transitions.deliver = errand
    return parent, SessionRef(child, id_)


def keys_of(redis: Redis, ref: SessionRef) -> list[str]:
    return sorted(str(key) for key in redis.keys(f"lh:{{{ref.root}}}:{ref.id}:*"))


def test_what_a_child_uses_brings_nothing_of_a_deleted_parent_back(bench: Bench) -> None:
    world = World.of(bench)
    parent, child = begun_by_a_doer(world)
    doer = world.grant(child, DO)
    world.engine.deletion.delete(parent.id)
    world.engine.attempts.beat(child, doer, spent=Usage(cost_usd=0.5))
    assert keys_of(bench.redis, parent) == []
    assert world.engine.queries.session(child.id).counters.cost_usd == 0.5


def test_a_child_of_a_deleted_parent_is_deleted_too(world: World, redis_client: Redis) -> None:
    parent, child = begun_by_a_doer(world)
    world.engine.deletion.delete(parent.id)
    world.later(1_000)
    assert world.engine.queries.session(child.id).status == "aborted"
    assert redis_client.keys("lh:idem:*")
    world.at("here").engine.deletion.delete(child.id)  # an engine that never read the parent
    assert keys_of(redis_client, child) == []
    assert not redis_client.keys("lh:idem:*")


def test_what_is_left_of_a_deleted_session_is_found_and_goes(
    world: World, redis_client: Redis
) -> None:
    kept = world.session()
    redis_client.hset("lh:{0}:0:session", "below/cost_micros", 1)
    redis_client.set("lh:id:00000000", "0")
    found = world.engine.audit.run(repair=True)
    assert {one.kind for one in found.items} == {"key_stray"}
    assert keys_of(redis_client, SessionRef("0", "0")) == []
    assert world.engine.audit.run().sessions == 1
    assert world.engine.queries.session(kept.id).status == "active"


def failed_and_passed_over(world: World) -> tuple[SessionRef, SessionRef]:
    """A parent that has completed without its child, which failed."""
    kid = Step(id="kid", action=Action.CHILD, inputs={"document": DOCUMENT}, critical=False)
    id_ = world.engine.submit.program(Program(body=(kid,)), About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    park(world.engine, world.engine.attempts.work(parent, world.grant(parent, "kid")))
    (child,) = world.engine.store.children(parent)
    ref = SessionRef(child, id_)
    world.settle(ref, world.grant(ref, DO), Outcome(word="failed", retryable=False))
    assert world.engine.queries.session(id_).status == "completed"
    return parent, ref


@pytest.mark.parametrize("deleted", [None, "before", "after"])
def test_a_child_that_a_user_resumed_is_no_orphan(world: World, deleted: str | None) -> None:
    parent, child = failed_and_passed_over(world)
    if deleted == "before":
        world.engine.deletion.delete(parent.id)
    world.engine.control.apply(child.id, "resume")
    if deleted == "after":
        world.engine.deletion.delete(parent.id)
    assert audit(world.engine.audit.run, repair=True).items == []
    world.later(1_000)
    assert world.engine.queries.session(child.id).status == "active"
    if deleted is None:
        world.engine.control.apply(child.id, "stop")
        world.engine.control.apply(child.id, "resume")
        assert audit(world.engine.audit.run).items == []


def test_a_child_that_a_user_resumed_is_an_orphan_of_a_parent_that_ends_after_that(
    world: World, redis_client: Redis
) -> None:
    parent, child = failed_and_passed_over(world)
    world.engine.control.apply(child.id, "resume")
    redis_client.hset(world.engine.store.keys.part(parent, "session"), "ended", world.now + 1)
    assert [one.kind for one in audit(world.engine.audit.run).items] == ["child_orphaned"]


def test_a_child_that_a_user_resumed_stays_at_work(bench: Bench) -> None:
    world = World.of(bench)
    _, child = failed_and_passed_over(world)
    world.engine.control.apply(child.id, "resume")
    world.later(1_000)
    assert world.engine.queries.session(child.id).status == "active"
