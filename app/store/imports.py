"""Copies a session from another store, to keys that are not visible until it is imported."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import NamedTuple, TypeVar, cast

from redis import Redis

from app.domain.ids import SessionRef
from app.store.keys import SESSION_PARTS, Keys

#: Entries of one batch.
BATCH = 500
#: Seconds after which the copies of a session that was never imported are gone.
COPY_TTL_S = 3600
#: What a session at rest does not have, what belongs to its old store, and what is written anew.
_LEFT = {"running", "holding", "hinted", "waiting", "hooks", "environment", "definitions"}
PARTS = tuple(part for part in SESSION_PARTS if part not in _LEFT)
#: Messages of a session that an import does not send: a person resumes it, and it is kept anew.
_NOT_SENT = ("resume", "forget")
_T = TypeVar("_T")


class Copy(NamedTuple):
    """Copied records: the end of their keys, and their number by part (of a text: its bytes)."""

    mark: str
    counts: Mapping[str, int]


class Due(NamedTuple):
    """Messages of a session that are on their way, and when its parked steps are due (in ms)."""

    errands: list[str]
    leases: dict[str, float]


class Imports:
    """Reads one store; the target's methods write a copy to the other one."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def roots(self) -> list[SessionRef]:
        """Read the sessions that no other one started, oldest first."""
        found = list[SessionRef]()
        with self._away():
            names = cast("list[str]", self._redis.zrange(self._keys.everywhere("sessions"), 0, -1))
            for some in _batches(names):
                roots = self._redis.mget([self._keys.id(session) for session in some])
                both = zip(some, roots, strict=True)
                found += [SessionRef(one, one) for one, root in both if root == one]
        return found

    def tree(self, root: SessionRef) -> list[SessionRef]:
        """Read a session and all its descendants that exist, children before their parents."""
        found = [root]
        for one in found:
            with self._away():
                names = self._redis.smembers(self._keys.part(one, "children"))
            children = (
                SessionRef(str(name), root.root) for name in sorted(cast("set[str]", names))
            )
            found += [child for child in children if child not in found]  # a damaged tree may turn
        with self._away():
            exist = [self._redis.exists(self._keys.part(one, "session")) for one in found]
        return [one for one, exists in zip(reversed(found), reversed(exist), strict=True) if exists]

    def due(self, tree: Sequence[SessionRef]) -> dict[str, Due]:
        """Read the outbox messages and lease times of these sessions, by session id."""
        found = {one.id: Due([], {}) for one in tree}
        with self._away():
            for message, _ in self._scan("errands"):
                verb, _, member = message.partition("|")
                session = member.partition("|")[0]
                if session in found and verb not in _NOT_SENT:
                    found[session].errands.append(message)
            for member, at_ms in self._scan("leases"):
                session = member.partition("|")[0]
                if session in found:
                    found[session].leases[member] = at_ms
        return found

    def _scan(self, part: str) -> Iterator[tuple[str, float]]:
        rows = self._redis.zscan_iter(self._keys.everywhere(part), count=BATCH)
        return cast("Iterator[tuple[str, float]]", rows)

    def copy(self, ref: SessionRef, target: Imports) -> Copy:
        """Copy a session's records to hidden keys of another store; they expire if not imported."""
        mark = f"~{secrets.token_hex(8)}"
        with self._away():
            counts = {part: target.put(ref, part + mark, self._read(ref, part)) for part in PARTS}
        return Copy(mark, {part: count for part, count in counts.items() if count})

    def _read(self, ref: SessionRef, part: str) -> Iterator[tuple[str, ...]]:
        """The commands, without the key, that write the part again."""
        key = self._keys.part(ref, part)
        kinds = {
            "string": self._text,
            "hash": self._hash,
            "set": self._set,
            "zset": self._zset,
            "list": self._list,
            "stream": self._stream,
        }
        kind = str(self._redis.type(key))
        return kinds[kind](key) if kind in kinds else iter(())

    def _text(self, key: str) -> Iterator[tuple[str, ...]]:
        yield "SET", str(self._redis.get(key))

    def _hash(self, key: str) -> Iterator[tuple[str, ...]]:
        for pairs in _batches(self._redis.hscan_iter(key, count=BATCH)):
            yield ("HSET", *(text for pair in pairs for text in pair))

    def _set(self, key: str) -> Iterator[tuple[str, ...]]:
        for names in _batches(self._redis.sscan_iter(key, count=BATCH)):
            yield ("SADD", *names)

    def _zset(self, key: str) -> Iterator[tuple[str, ...]]:
        for rows in _batches(self._redis.zscan_iter(key, count=BATCH)):
            yield ("ZADD", *(text for name, score in rows for text in (repr(score), name)))

    def _list(self, key: str) -> Iterator[tuple[str, ...]]:
        start = 0
        while lines := cast("list[str]", self._redis.lrange(key, start, start + BATCH - 1)):
            yield ("RPUSH", *lines)
            start += len(lines)

    def _stream(self, key: str) -> Iterator[tuple[str, ...]]:
        after = "-"
        while entries := self._redis.xrange(key, min=after, count=BATCH):
            for name, fields in cast("list[tuple[str, dict[str, str]]]", entries):
                yield ("XADD", name, *(text for pair in fields.items() for text in pair))
                after = f"({name}"

    def put(self, ref: SessionRef, part: str, commands: Iterator[tuple[str, ...]]) -> int:
        """Write a part of a session's data by Redis commands, with an expiry; returns its size."""
        key = self._keys.part(ref, part)
        for some in _batches(commands):
            with self._away(), self._redis.pipeline(transaction=True) as pipe:
                for verb, *rest in some:
                    pipe.execute_command(verb, key, *rest)  # type: ignore[no-untyped-call]
                pipe.expire(key, COPY_TTL_S)
                pipe.execute()
        return self._size(key)

    def _size(self, key: str) -> int:
        size = {
            "hash": self._redis.hlen, "list": self._redis.llen, "set": self._redis.scard,
            "stream": self._redis.xlen, "string": self._redis.strlen, "zset": self._redis.zcard,
        }  # fmt: skip
        with self._away():
            kind = str(self._redis.type(key))
            return int(size[kind](key)) if kind in size else 0


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(items)
    while some := list(islice(rest, BATCH)):
        yield some
