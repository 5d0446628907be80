"""A worker joins its fleet: with its secret, its form of the store, and a name of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from app.fleet.store_guard import check_secret
from app.settings import Settings
from leadhand.client.client import Client
from leadhand.errors import SchemaDiffers, SecretDiffers
from tests.fleet import Fleet
from tests.integration.api.test_api_process import TOKEN, running
from tests.silent_engine import silent_engine
from tests.waiting import wait_until


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    (tmp_path / "work").mkdir()
    fleet = Fleet(tmp_path / "work", store_url, broker_url, lease_s=2)
    yield fleet
    fleet.close()


def refused(fleet: Fleet, name: str, **env: str) -> str:
    """The output of a worker that ends by itself with exit code 1."""
    worker = fleet.begin(name, **env)
    assert worker.wait(timeout=30) == 1
    text = (fleet.folder / f"{name}.log").read_text()
    assert "Traceback" not in text
    return text


@pytest.mark.slow
def test_worker_with_another_secret_refuses_to_start_and_fails_no_session(
    fleet: Fleet, tmp_path: Path, store_url: str, broker_url: str
) -> None:
    more = {"LEADHAND_BROKER_URL": broker_url, "LEADHAND_SECRET": "secret of the test"}
    with running(tmp_path, store_url, **more) as url, Client(url, TOKEN) as client:
        assert "LEADHAND_SECRET differs" in refused(fleet, "wrong", LEADHAND_SECRET="another")
        assert "worker wrong refused to start" in client.fleet().troubles[0]
        fleet.worker("good")
        loop = {"kind": "loop", "task": "x", "doer": {"command": "true"}, "checkers": ["true"]}
        for _ in range(3):
            session = client.submit({**loop, "cwd": str(fleet.folder)}).id
            assert client.wait(session, 20).status == "completed"
        fleet.worker("wrong")  # with the right secret
        assert client.fleet().troubles == []


def test_api_with_another_secret_refuses_to_start(fleet: Fleet, tmp_path: Path) -> None:
    check_secret(fleet.engine.store, fleet.engine.settings)
    env = {**fleet.env, "LEADHAND_SECRET": "another"}
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "leadhand.serve", "api"],
        cwd=tmp_path, env=env, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "LEADHAND_SECRET differs" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "another" not in ended.stderr


@pytest.mark.parametrize("schema", ["2", None])
def test_store_of_another_form_is_used_by_no_process(
    fleet: Fleet, tmp_path: Path, redis_client: redis.Redis, schema: str | None
) -> None:
    redis_client.set("lh:store", "0" * 32)
    if schema is not None:
        redis_client.set("lh:store-schema", schema)
    sentence = f"has {'no schema' if schema is None else 'schema 2'}"
    with pytest.raises(SchemaDiffers, match=sentence):
        fleet.engine.guard.check()
    assert sentence in refused(fleet, "early")
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "leadhand.serve", "api"],
        cwd=tmp_path, env=fleet.env, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    line = ended.stderr.splitlines()[-1]  # warnings about this Redis are above it
    assert sentence in line
    assert "`leadhand down`" in line
    assert redis_client.get("lh:store-schema") == schema


def test_empty_store_gets_its_form_and_keeps_it(store_url: str, redis_client: redis.Redis) -> None:
    silent_engine(store_url).guard.check()
    assert redis_client.get("lh:store-schema") == "1"
    silent_engine(store_url).guard.check()


def test_rotation_goes_through_the_fleet_process_by_process(
    store_url: str, redis_client: redis.Redis
) -> None:
    store = silent_engine(store_url).store

    def start(secret: str, other: str = "") -> None:
        check_secret(store, Settings(secret=secret, secret_other=other))

    def end_those_before() -> None:
        redis_client.delete("lh:secrets-used")  # as after the inventory's deadline

    start("old")
    for steps in (("old", "new"), ("old", ""), ("old", "new")):
        start(*steps)
    with pytest.raises(SecretDiffers):  # the old one signs, although the new one is accepted
        start("new")
    for steps in (("old", "new"), ("new", "old"), ("old", "new"), ("new", "old")):
        start(*steps)
    with pytest.raises(SecretDiffers):  # processes that sign with the old one are at work
        start("new")
    end_those_before()
    start("new", "old")
    start("new")
    with pytest.raises(SecretDiffers):
        start("old")
    with pytest.raises(SecretDiffers):
        start("newer")


def test_of_two_secrets_at_the_first_start_one_wins(
    store_url: str, redis_client: redis.Redis
) -> None:
    store = silent_engine(store_url).store
    check_secret(store, Settings(secret="one"))
    with pytest.raises(SecretDiffers):
        check_secret(store, Settings(secret="two"))
    kept = str(redis_client.get("lh:secret"))
    assert "one" not in kept
    redis_client.delete("lh:secret")
    check_secret(store, Settings(secret="two"))


def test_own_redis_takes_the_secret_that_its_services_have_now(store_url: str) -> None:
    store = silent_engine(store_url).store
    check_secret(store, Settings(secret="one"))
    check_secret(store, Settings(secret="two", own_redis=True))
    check_secret(store, Settings(secret="two"))


@pytest.mark.slow
def test_sessions_and_tokens_of_the_other_secret_are_accepted_while_it_is_rotated(
    fleet: Fleet, tmp_path: Path, store_url: str, broker_url: str
) -> None:
    old = {"LEADHAND_BROKER_URL": broker_url, "LEADHAND_SECRET": "old"}
    new = {**old, "LEADHAND_SECRET": "new", "LEADHAND_SECRET_OTHER": "old"}
    loop = {"kind": "loop", "task": "x", "doer": {"command": "true"}, "checkers": ["true"]}
    with running(tmp_path, store_url, **old) as url, Client(url, TOKEN) as client:
        session = client.submit({**loop, "cwd": str(fleet.folder)}).id
        made = client.create_token("ci", ["read"]).token
    with running(tmp_path, store_url, **new) as url, Client(url, made) as client:
        fleet.worker("one", LEADHAND_SECRET="new", LEADHAND_SECRET_OTHER="old")
        assert client.wait(session, 20).status == "completed"


def test_second_worker_of_a_name_refuses_to_start(fleet: Fleet) -> None:
    first = fleet.worker("one")
    log = fleet.folder / "one.log"
    log.rename(fleet.folder / "first.log")
    text = refused(fleet, "one")
    holder = f"{socket.gethostname()} (process {first.pid})"
    (said,) = (line for line in text.splitlines() if "one" in line)
    assert said == (
        "worker cannot start: LEADHAND_WORKER_NAME is 'one': a worker of that name is running on "
        f"{holder}; give this one another name, or stop that one"
    )
    assert first.poll() is None
    done = fleet.ended(fleet.loop("true", "true"))
    assert done.status == "completed", "the first one works on"


@pytest.mark.slow
def test_worker_that_was_killed_gives_its_name_to_the_next_one_of_its_host(fleet: Fleet) -> None:
    fleet.kill(fleet.worker("one"))
    again = fleet.begin("one")
    wait_until(lambda: fleet.engine.fleet.inventories()[0].pid == again.pid, timeout=20)


@pytest.mark.slow
def test_name_of_a_worker_of_another_host_is_free_once_its_inventory_is_old(
    fleet: Fleet, redis_client: redis.Redis
) -> None:
    redis_client.set("lh:name:one", "elsewhere|1|0.0", px=60_000)
    assert "elsewhere (process 1)" in refused(fleet, "one")
    redis_client.pexpire("lh:name:one", 1)
    fleet.worker("one")
    assert 0 < int(str(redis_client.pttl("lh:name:one"))) <= 45_000


@pytest.mark.slow
def test_worker_whose_name_was_taken_meanwhile_drains_and_ends(
    fleet: Fleet, redis_client: redis.Redis
) -> None:
    worker = fleet.worker("one", LEADHAND_INVENTORY_S="2")
    redis_client.set("lh:name:one", "elsewhere|1|0.0", px=60_000)
    assert worker.wait(timeout=30) == 0
    assert "drains and ends" in (fleet.folder / "one.log").read_text()


def test_stopped_worker_lets_its_name_go(fleet: Fleet, redis_client: redis.Redis) -> None:
    worker = fleet.worker("one")
    worker.terminate()
    worker.wait(timeout=30)
    assert redis_client.get("lh:name:one") is None
