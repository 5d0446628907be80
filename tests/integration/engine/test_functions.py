"""How a server is given the transitions: as functions where it takes them, else as scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.store.script_library import PREFIX, text_of
from app.store.script_runner import KEPT
from app.store.store import Store, connect
from leadhand.errors import StoreAway
from tests.engine.driving import Bench

NOBODY = SessionRef("nobody", "nobody")


@pytest.fixture
def server(store_url: str, redis_url: str) -> Iterator[redis.Redis]:
    with connect(redis_url) as client:
        client.function_flush()
        yield client
        client.function_flush()
        client.acl_deluser("few")


def claim(store: Store) -> str:
    arguments: dict[str, JsonValue] = {
        "address": "a",
        "nonce": "n",
        "worker": "w",
        "lease_ms": 1000,
        "schema": 2,
    }
    return store.run("claim", NOBODY, "", arguments).word


def libraries(server: redis.Redis) -> int:
    return len(server.function_list(f"{PREFIX}*"))


def test_they_are_loaded_once(server: redis.Redis, store_url: str) -> None:
    for _ in range(2):
        assert claim(Store(connect(store_url))) == "refused"
    assert libraries(server) == 1


def test_a_server_that_lost_them_is_given_them_again(server: redis.Redis, store_url: str) -> None:
    store = Store(connect(store_url))
    claim(store)
    server.function_flush()
    assert claim(store) == "refused"
    assert libraries(server) == 1


def test_versions_work_side_by_side_and_the_oldest_is_forgotten(
    server: redis.Redis, store_url: str
) -> None:
    def version(number: int) -> Store:
        return Store(connect(store_url), read=lambda file: f"-- {number}\n{text_of(file)}")

    stores = [version(number) for number in range(KEPT + 2)]
    for store in [*stores, *stores]:
        assert claim(store) == "refused"
    assert libraries(server) == KEPT


@pytest.mark.parametrize("refused", ["-fcall", "-function", "-function|load"])
def test_who_may_load_no_functions_calls_scripts(
    server: redis.Redis, store_url: str, refused: str
) -> None:
    server.acl_setuser("few", enabled=True, nopass=True, keys=["*"], commands=["+@all", refused])
    few = connect(store_url)
    few.connection_pool.connection_kwargs |= {"username": "few", "password": "few"}
    store = Store(few)
    assert [claim(store), claim(store)] == ["refused", "refused"]
    assert server.info("commandstats")["cmdstat_evalsha"]["calls"] > 0


def test_a_server_that_is_full_is_away_and_not_one_without_functions(
    server: redis.Redis, store_url: str
) -> None:
    store = Store(connect(store_url))
    server.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreAway):
            claim(store)
    finally:
        server.config_set("maxmemory", 0)
    assert claim(store) == "refused"
    assert libraries(server) == 1


def test_a_server_that_is_full_makes_room(server: redis.Redis, store_url: str) -> None:
    bench = Bench(connect(store_url))
    drive = bench.start(Program(body=(Step(id="one", action=Action.TOOL),)))
    drive.settle(drive.take("one"))
    server.config_set("maxmemory", 1)
    try:
        assert bench.due().word == "due"
        assert drive.delete().word == "deleted"
    finally:
        server.config_set("maxmemory", 0)
    assert not server.keys("*aaaaaaaa*")
