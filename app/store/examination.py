"""Examines a Redis before it is used: its kind, its settings, and the rights of the user.

Each right is tried with a command on a key of a type that it does not fit: the server checks the
right first, and then nothing is written.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from redis import Redis
from redis.connection import ConnectionInterface
from redis.exceptions import NoPermissionError, ResponseError

from app.store.errors import StorePart, forbidden_command, lacks_rights

#: What the store sends, each on a key that holds a text; `tests/deploy` compares it with what a
#: server counted.
STATE = (
    "SET k a PX 60000", "GET k", "MGET k", "GETEX k", "STRLEN k", "EXISTS k", "TYPE k", "TTL k",
    "PTTL k", "PERSIST k", "EXPIRE k 60", "PEXPIRE k 60000", "RENAME k k",
    "HSET k a b", "HSETNX k a b", "HGET k a", "HMGET k a", "HGETALL k", "HKEYS k", "HLEN k",
    "HEXISTS k a", "HSTRLEN k a", "HDEL k a", "HINCRBY k a 1", "HSCAN k 0",
    "SADD k a", "SREM k a", "SCARD k", "SISMEMBER k a", "SMEMBERS k", "SSCAN k 0",
    "ZADD k 1 a", "ZREM k a", "ZCARD k", "ZCOUNT k 0 1", "ZSCORE k a", "ZMSCORE k a",
    "ZRANGE k 0 1", "ZREVRANGE k 0 1", "ZRANGEBYSCORE k 0 1", "ZREVRANGEBYSCORE k 1 0",
    "ZRANGEBYLEX k - +", "ZREVRANGEBYLEX k + -", "ZLEXCOUNT k - +", "ZREMRANGEBYLEX k - +",
    "ZPOPMIN k", "ZSCAN k 0",
    "RPUSH k a", "LRANGE k 0 1", "LINDEX k 0", "LLEN k", "LSET k 0 a", "LREM k 0 a", "LTRIM k 0 1",
    "XADD k * a b", "XRANGE k - +", "XREVRANGE k + -", "XREAD STREAMS k 0", "XLEN k",
    "XTRIM k MAXLEN 1",
    "TIME", "INFO server", "WATCH k", "UNWATCH", "MULTI", "EXEC", "GETDEL k", "UNLINK k", "DEL k",
)  # fmt: skip
#: The API alone looks at every key, for `leadhand fsck`.
API = ("SCAN 0 MATCH k",)
#: Ways to run a transition; one of them must work.
_NO_SCRIPT = "0" * 40
SCRIPTS = (
    ("FCALL leadhand_none 0", "FUNCTION LOAD #!lua"),
    (f"EVALSHA {_NO_SCRIPT} 0", "SCRIPT LOAD return"),
)
#: What kombu sends; c is a channel. Its consumers ignore a message that is empty.
BROKER = (
    "SET k a PX 60000", "LLEN agents", "LPUSH k a", "BRPOP k 1", "LRANGE k 0 1", "LREM k 0 a",
    "EXISTS k", "SADD k a", "SREM k a", "SMEMBERS k", "MULTI", "EXEC", "DEL k",
    "PUBLISH c.celery.pidbox ", "PUBLISH c.celeryev/x ", "SUBSCRIBE c.celery.pidbox",
)  # fmt: skip


class Examined(NamedTuple):
    """What an examination found, as parts of sentences about the Redis."""

    #: Reasons not to use it.
    faults: tuple[str, ...] = ()
    #: Its data may be lost.
    warnings: tuple[str, ...] = ()


class Examination(StorePart):
    """Examines the Redis of a store or of a broker; its client uses the protocol RESP2."""

    def state(self, *, scans: bool) -> Examined:
        """Examine the Redis of the state; `scans` is for the user of an API. Raises StoreAway."""
        key = self._keys.everywhere(f"examined-{secrets.token_hex(8)}")
        with self._away():
            faults = list(_faults_of_kind(self._redis))
            missing = _forbidden(self._redis, key, STATE + (API if scans else ()))
            ways = [_forbidden(self._redis, key, way) for way in SCRIPTS]
            if all(ways):
                missing += [name for way in ways for name in way]
            if missing:
                faults.append(lacks_rights(missing))
            return Examined(tuple(faults), tuple(_warnings(self._redis)))

    def broker(self, *, is_same: bool) -> Examined:
        """Examine the Redis of the messages; `is_same` if it is that of the state, too."""
        database = self._redis.connection_pool.connection_kwargs.get("db") or 0
        key = f"_kombu.leadhand.examined-{secrets.token_hex(8)}"
        with self._away():
            faults = [] if is_same else list(_faults_of_kind(self._redis))
            if missing := _forbidden(self._redis, key, BROKER, channel=f"/{database}"):
                faults.append(lacks_rights(missing))
            return Examined(tuple(faults))


def _info(redis: Redis, section: str) -> dict[str, object]:
    """A section of INFO; empty for a user who may not read it, which is named by its right."""
    try:
        return cast("dict[str, object]", redis.info(section))
    except NoPermissionError:
        return {}


def _faults_of_kind(redis: Redis) -> Iterator[str]:
    if _info(redis, "cluster").get("cluster_enabled") == 1:
        yield "it is a Redis Cluster, which does not keep a session's keys together; give a server"
    if _info(redis, "replication").get("role") == "slave":
        yield "it is a read-only replica; give the address of its primary"
    policy = _info(redis, "memory").get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        lost = f"its maxmemory-policy is {policy}, by which it drops what was answered"
        yield f"{lost}; set maxmemory-policy noeviction"


def _warnings(redis: Redis) -> Iterator[str]:
    if _info(redis, "persistence").get("aof_enabled", 1) == 0:
        lost = "what was answered after its last snapshot, if it takes any, is lost when it crashes"
        yield f"it writes no append-only file: {lost}; set appendonly yes"


def _forbidden(redis: Redis, key: str, commands: Sequence[str], *, channel: str = "") -> list[str]:
    """The commands that the server does not let this user run, each once."""
    given = {"k": key, "c.celery.pidbox": f"{channel}.celery.pidbox"}
    given["c.celeryev/x"] = f"{channel}.celeryev/x"
    sent = [[given.get(word, word) for word in command.split(" ")] for command in commands]
    connection = redis.connection_pool.get_connection()
    try:
        connection.send_packed_command(connection.pack_commands(sent))  # type: ignore[no-untyped-call]
        found = [name for words in sent if (name := _refusal(connection, words))]
    finally:
        connection.disconnect()  # type: ignore[no-untyped-call]
        redis.connection_pool.release(connection)
    return list(dict.fromkeys(found))


def _refusal(connection: ConnectionInterface, words: Sequence[str]) -> str | None:
    """Reads the reply to a command; returns the command's name if the server refuses it."""
    try:
        connection.read_response()
    except NoPermissionError as error:
        text = str(error).lower()
        kind = next((kind for kind in ("channel", "key") if f" {kind}" in text), None)
        if kind is None:
            return forbidden_command(error)
        name = next((word for word in words if "examined-" in word), words[1])
        return f"commands with the {kind} {name.partition('examined-')[0]}*"
    except ResponseError as error:
        return words[0] if "unknown command" in str(error).lower() else None
    return None
