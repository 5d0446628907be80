"""A full server: operations that free memory succeed, and all others wait and report it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from app import sweep
from app.core.addresses import SessionRef
from app.store.store import Store, connect
from leadhand.errors import SessionUnknown, StoreFull
from tests.engine.children.test_children import family
from tests.engine.driving import Bench, program, step
from tests.engine.world import World

KEPT_MS = 40 * 24 * 3600 * 1000


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


@contextmanager
def full(redis: Redis) -> Iterator[None]:
    redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        redis.config_set("maxmemory", 0)


def ended(world: World) -> SessionRef:
    ref = world.session()
    world.engine.control.apply(ref.id, "abort")
    return ref


def is_there(world: World, ref: SessionRef) -> bool:
    try:
        world.engine.queries.session(ref.id)
    except SessionUnknown:
        return False
    return True


def test_the_sweep_makes_room_whatever_else_is_due(
    world: World, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "BATCH", 2)  # the impossible lines come before the possible ones
    old = [ended(world) for _ in range(3)]
    redis_client.zadd("lh:errands", {f"deliver|{ref.member}": 1 for ref in old})
    world.now += KEPT_MS
    runs = [world.session(f"/{n}") for n in range(3)]
    for ref in runs:
        world.grant(ref, "loop~1[1]/do")
    world.now += world.engine.settings.lease_ms + 1
    with full(redis_client):
        world.later(1_000)
        assert not any(is_there(world, ref) for ref in old)
    world.later(1_000)
    assert all(world.engine.queries.session(ref.id).counters.attempts_lost for ref in runs)


def test_what_makes_room_is_found_whatever_stands_before_it(bench: Bench) -> None:
    errands = {"deliver|a|a|": 1, "forget|b|b|": 2, "forget|c|c|": 9e15}
    bench.redis.zadd(bench.store.keys.everywhere("errands"), errands)
    assert bench.due(limit=1, room=True).errands == ("forget|b|b|",)


def test_a_server_without_functions_is_swept_while_it_is_full(
    store_url: str, redis_client: Redis
) -> None:
    redis_client.acl_setuser(
        "few", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-fcall"]
    )
    few = connect(store_url)
    few.connection_pool.connection_kwargs |= {"username": "few", "password": "few"}
    bench = Bench(few)
    drive = bench.start(program(step("one")))
    drive.do("one")
    with full(redis_client):
        assert bench.due().word == "due"
        assert drive.delete().word == "deleted"


def test_a_child_whose_word_was_heard_is_deleted_while_the_server_is_full(
    world: World, redis_client: Redis
) -> None:
    parent, child = family(world)
    world.turn(child, 1, "accept", check="check.true")
    with full(redis_client):
        world.engine.deletion.delete(child.id)
        assert not is_there(world, child)
    assert world.engine.queries.session(parent.id).status == "completed"


def test_a_child_whose_word_nobody_heard_stays_until_there_is_room(
    world: World, redis_client: Redis
) -> None:
    parent, child = family(world)
    errand = world.engine.transitions.deliver
    world.engine.transitions.deliver = lambda _: None
    world.turn(child, 1, "accept", check="check.true")
    world.engine.transitions.deliver = errand
    with full(redis_client), pytest.raises(StoreFull, match="is full"):
        world.engine.deletion.delete(child.id)
    world.engine.deletion.delete(child.id)
    assert world.engine.queries.session(parent.id).status == "completed"


def test_what_is_refused_for_want_of_room_says_so(store_url: str, redis_client: Redis) -> None:
    store = Store(connect(store_url))
    with full(redis_client):
        with pytest.raises(StoreFull):
            store.fleet().record_owed_export("s", "why")
        with pytest.raises(StoreFull):
            store.run("claim", SessionRef("s", "s"), "p", {"address": "a"})
