"""What each user of the fleet's Redis may do, and what it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.deploy.compose import Topology, new_environment


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    topology = Topology(tmp_path_factory.mktemp("fleet"), new_environment())
    try:
        topology.up("redis")
        yield topology
    finally:
        topology.close()


def as_user(fleet: Topology, user: str) -> redis.Redis:
    password = fleet.environment[f"REDIS_{user.upper()}_PASSWORD"]
    port = int(fleet.ports["6379"])
    return redis.Redis(port=port, username=user, password=password, decode_responses=True)


def test_nobody_comes_in_without_a_name(fleet: Topology) -> None:
    with (
        redis.Redis(port=int(fleet.ports["6379"])) as nobody,
        pytest.raises(redis.AuthenticationError),
    ):
        nobody.ping()


@pytest.mark.parametrize(
    ("user", "command"),
    [
        ("broker", "HGETALL lh:workers"),
        ("broker", "SET lh:swept 1"),
        ("api", "LPUSH agents message"),
        ("worker", "LPUSH agents message"),
        ("worker", "PUBLISH /1.celery.pidbox shutdown"),
        ("operator", "HGETALL lh:tokens"),
        *((user, "FLUSHALL") for user in ("api", "worker", "broker", "operator")),
        *((user, "CONFIG GET dir") for user in ("api", "worker", "broker", "operator")),
        *((user, "KEYS *") for user in ("api", "worker", "broker", "operator")),
        *((user, "ACL LIST") for user in ("api", "worker", "broker", "operator")),
        *((user, "SHUTDOWN") for user in ("api", "worker", "broker", "operator")),
        *((user, "SCRIPT FLUSH") for user in ("api", "worker", "broker", "operator")),
    ],
)
def test_a_user_is_refused_what_is_not_its_own(fleet: Topology, user: str, command: str) -> None:
    with as_user(fleet, user) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command.split())


def test_a_script_reaches_no_further_than_its_user(fleet: Topology) -> None:
    with as_user(fleet, "broker") as client, pytest.raises(redis.ResponseError):
        client.eval("return redis.call('GET', 'lh:swept')", 0)


def test_what_is_kept_of_the_passwords_is_not_the_passwords(fleet: Topology) -> None:
    written = Path(fleet.folder / "redis-data" / "users.acl")
    assert written.stat().st_mode & 0o077 == 0
    secrets = [v for name, v in fleet.environment.items() if name.endswith("_PASSWORD")]
    assert [secret for secret in secrets if secret in written.read_text()] == []


def test_it_writes_before_it_answers_and_throws_nothing_out(fleet: Topology) -> None:
    conf = (Path(__file__).parents[2] / "deploy" / "redis" / "redis.conf").read_text().splitlines()
    assert {"appendonly yes", "appendfsync always", "maxmemory-policy noeviction"} <= set(conf)
    with as_user(fleet, "operator") as client:
        told = client.info()
    assert told["aof_enabled"] == 1
    assert told["maxmemory_policy"] == "noeviction"
