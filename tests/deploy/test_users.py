"""What each user of the fleet's Redis may do, and what it is refused."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.deploy.compose import ROOT, Topology, new_environment
from tests.deploy.talking import as_user


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    topology = Topology(tmp_path_factory.mktemp("fleet"), new_environment())
    try:
        topology.up("redis")
        yield topology
    finally:
        topology.close()


def test_nobody_comes_in_without_a_name(fleet: Topology) -> None:
    with (
        redis.Redis(port=int(fleet.ports["6379"])) as nobody,
        pytest.raises(redis.AuthenticationError),
    ):
        nobody.ping()


STATE = ("api", "worker")
USERS = (*STATE, "broker", "operator")

#: Commands that each user needs. Beside them the server refuses all that REFUSED names.
ALLOWED = {
    "api": ("SCAN 0 MATCH lh:*",),  # `leadhand fsck` looks at every key
    "worker": (),
    "broker": (
        "SELECT 1",
        "LPUSH agents@there message", "LLEN agents@there", "BRPOP agents@there 1",
        "LRANGE tools 0 9", "LREM tools 1 message", "DEL tools",
        "SADD _kombu.binding.agents agents", "SMEMBERS _kombu.binding.agents",
        "HSET unacked tag message", "ZADD unacked_index 1 tag",
        "SET unacked_mutex token NX PX 100", "PEXPIRE agents@there 100", "EXISTS agents@there",
        "PUBLISH /1.celery.pidbox message", "PUBLISH /1.celeryev/task.sent message",
        "PSUBSCRIBE /1.celeryev/*", "MULTI", "SCRIPT EXISTS 0", "INFO memory",
    ),
    "operator": ("PING", "INFO", "BGREWRITEAOF", "DBSIZE", "SLOWLOG GET", "ACL WHOAMI", "ACL LOG"),
}  # fmt: skip
OF_STATE = (
    "PING", "INFO server", "TIME", "FUNCTION LIST", "SCRIPT LOAD return",
    "HSET lh:tests a b", "HGETALL lh:tests", "ZADD lh:tests-z 1 a", "SADD lh:tests-s a",
    "XADD lh:tests-x * a b", "XRANGE lh:tests-x - +", "RPUSH lh:tests-l a", "SET lh:tests-v a",
    "EXPIRE lh:tests 9", "PERSIST lh:tests", "DEL lh:tests", "MULTI", "WATCH lh:tests", "UNWATCH",
)  # fmt: skip

REFUSED = {
    "api": (),
    "worker": ("SCAN 0",),
    "broker": (
        "SCAN 0", "SELECT 0", "EVAL return 0", "FUNCTION LIST", "FCALL leadhand_claim 0",
        "HGETALL lh:workers", "SET lh:swept 1", "COPY lh:swept agents", "MOVE agents 0",
        "SUBSCRIBE __keyspace@0__:lh:swept", "PSUBSCRIBE *", "PUBLISH other message",
    ),
    "operator": ("SCAN 0", "GET lh:swept", "HGETALL lh:tokens", "SELECT 1", "EVAL return 0"),
}  # fmt: skip
TO_STATE = (
    "SELECT 0", "SELECT 1", "LPUSH agents message", "PUBLISH /1.celery.pidbox shutdown",
    "SUBSCRIBE /1.celery.pidbox", "EVAL return 0", "COPY lh:swept agents",
)  # fmt: skip
TO_ALL = (
    "RANDOMKEY", "KEYS *", "CLIENT TRACKING on BCAST", "CLIENT LIST", "MONITOR", "FLUSHALL",
    "FLUSHDB", "SWAPDB 0 1", "SCRIPT FLUSH", "FUNCTION FLUSH", "FUNCTION RESTORE x",
    "CONFIG GET dir", "CONFIG SET dir /", "ACL LIST", "ACL SETUSER default on",
    "MODULE LIST", "REPLICAOF NO ONE", "MIGRATE h 1 k 0 1", "SORT agents", "SAVE", "SHUTDOWN",
)  # fmt: skip


def allowed(user: str) -> tuple[str, ...]:
    return ALLOWED[user] + (OF_STATE if user in STATE else ())


def refused(user: str) -> tuple[str, ...]:
    return REFUSED[user] + (TO_STATE if user in STATE else ()) + TO_ALL


def pairs(commands: Callable[[str], tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(user, command) for user in USERS for command in commands(user)]


def words(command: str) -> list[str]:
    """The words of a command; scripts get the number of their keys."""
    return [*command.split(), "0"] if command.startswith("EVAL ") else command.split()


@pytest.mark.parametrize(("user", "command"), pairs(refused))
def test_a_user_is_refused_what_is_not_its_own(fleet: Topology, user: str, command: str) -> None:
    with as_user(fleet, user) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*words(command))


@pytest.mark.parametrize(("user", "command"), pairs(allowed))
def test_a_user_may_do_what_it_needs(fleet: Topology, user: str, command: str) -> None:
    with as_user(fleet, user) as client:
        client.execute_command(*words(command))


def test_a_script_reaches_no_further_than_its_user(fleet: Topology) -> None:
    for user, command in (("broker", "'GET', 'lh:swept'"), ("worker", "'SCAN', '0'")):
        with as_user(fleet, user) as client:
            script = client.script_load(f"return redis.call({command})")
            with pytest.raises(redis.ResponseError, match=r"ermission|can.t (run|access)"):
                client.evalsha(script, 0)


def test_the_broker_s_user_reads_no_state_in_the_database_where_it_begins(fleet: Topology) -> None:
    """A connection begins in database 0 without SELECT: the patterns of keys protect the state."""
    with as_user(fleet, "api") as client:
        client.set("lh:swept", "1")
    for command in ("GET lh:swept", "TYPE lh:swept", "DEL lh:swept", "EXISTS lh:swept"):
        with (
            as_user(fleet, "broker") as client,
            pytest.raises(redis.exceptions.NoPermissionError),
        ):
            client.execute_command(*command.split())


def commands_of_the_transitions() -> set[str]:
    texts = [path.read_text() for path in (ROOT / "app/store/lua").rglob("*.lua")]
    return {word for text in texts for word in re.findall(r"redis\.call\('([A-Z]+)'", text)}


def would_run(client: redis.Redis, user: str, command: str) -> bool:
    """Whether the server would run it for this user, with some number of arguments."""
    for count in range(7):
        with contextlib.suppress(redis.ResponseError):  # a wrong number
            found = client.execute_command("ACL", "DRYRUN", user, command, *["lh:a"] * count)
            return str(found) == "OK"
    return False


@pytest.mark.parametrize("user", STATE)
def test_users_of_the_state_may_run_every_command_of_the_transitions(
    redis_client: redis.Redis, user: str
) -> None:
    lines = (ROOT / "deploy" / "redis" / "users.acl").read_text().splitlines()
    (rules,) = [line.split()[2:-1] for line in lines if line.startswith(f"user {user} ")]
    redis_client.execute_command("ACL", "SETUSER", user, *rules)
    try:
        commands = commands_of_the_transitions()
        assert len(commands) > 30
        assert [name for name in commands if not would_run(redis_client, user, name)] == []
        assert not would_run(redis_client, user, "FLUSHALL")
    finally:
        redis_client.execute_command("ACL", "DELUSER", user)


def test_what_is_kept_of_the_passwords_is_not_the_passwords(fleet: Topology) -> None:
    written = Path(fleet.folder / "redis-data" / "users.acl")
    assert written.stat().st_mode & 0o077 == 0
    secrets = [v for name, v in fleet.environment.items() if name.endswith("_PASSWORD")]
    assert [secret for secret in secrets if secret in written.read_text()] == []


def test_it_writes_before_it_answers_and_throws_nothing_out(fleet: Topology) -> None:
    conf = (ROOT / "deploy" / "redis" / "redis.conf").read_text().splitlines()
    assert {"appendonly yes", "appendfsync always", "maxmemory-policy noeviction"} <= set(conf)
    with as_user(fleet, "operator") as client:
        told = client.info()
    assert told["aof_enabled"] == 1
    assert told["maxmemory_policy"] == "noeviction"
