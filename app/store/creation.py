"""Creates sessions, also as copies, and sends a program only if the store may not have it."""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from pydantic import JsonValue
from redis import Redis

from app.core.addresses import SessionRef
from app.core.records import NewSession, Reply, StoredProgram
from app.store.keys import Keys
from app.store.script_library import Verb
from app.store.script_runner import Call

#: Records of one batch.
BATCH = 500
#: Seconds after which the copies of a fork that was never completed are gone.
COPY_TTL_S = 3600
#: States of steps that have ended.
_ENDED = frozenset({"succeeded", "failed", "cancelled", "skipped"})
#: Fields of a step's record that belong to its attempts.
_OF_ATTEMPTS = ("nonce", "owner", "lease", "deadline", "heard")
_SUPERSEDED = {"code": "superseded", "text": "it had not ended when the session was forked"}
K = TypeVar("K")
V = TypeVar("V")
#: The number of programs that a process remembers as stored.
KNOWN = 1024
#: Runs a transition on several sessions in one round trip; takes session, program and arguments.
RunEach = Callable[[Verb, Sequence[tuple[SessionRef, str, Call]]], list[Reply]]


class Copied(NamedTuple):
    """What was copied: the number of records of each part, and what their steps had cost."""

    counts: dict[str, int]
    cost_micros: int


class Copies:
    """Copies in batches. A copy expires unless its session is created."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away
        self._cost_micros = 0

    def copy(self, source: SessionRef, target: SessionRef) -> Copied:
        """Copy the records of ended steps and loops to another session; returns their counts."""
        self._cost_micros = 0
        counts = {
            "steps": self._hash(source, target, "steps", self._step),
            "turns": self._hash(source, target, "turns", _turn),
            "out": self._hash(source, target, "out", lambda _, text: text),
            "runs": self._hash(source, target, "runs", lambda _, text: text),
            "items": self._hash(source, target, "items", lambda _, text: text),
            "artifacts": self._hash(source, target, "artifacts", lambda _, text: text),
            "ledger": self._list(source, target, "ledger"),
        }
        self._widths(source, target)
        return Copied(counts, self._cost_micros)

    def request(self, ref: SessionRef) -> str | None:
        """Read the document that a session was submitted with; None if none is stored."""
        return self._text(ref, "request")

    def environment(self, ref: SessionRef) -> str:
        """Read the encrypted environment of a session; '' for none."""
        return self._text(ref, "environment") or ""

    def definitions(self, ref: SessionRef) -> str:
        """Read the agent and tool definitions of a session's folder (JSON); '' for none."""
        return self._text(ref, "definitions") or ""

    def _text(self, ref: SessionRef, part: str) -> str | None:
        with self._away():
            found = self._redis.get(self._keys.part(ref, part))
        return None if found is None else str(found)

    def discard(self, target: SessionRef) -> None:
        """Delete the copied records of a fork that was refused."""
        parts = ("steps", "turns", "out", "runs", "items", "artifacts", "ledger", "widths")
        with self._away():
            self._redis.delete(*(self._keys.part(target, part) for part in parts))

    def _hash(
        self,
        source: SessionRef,
        target: SessionRef,
        part: str,
        convert: Callable[[str, str], str | None],
    ) -> int:
        for batch in self._batches(source, part):
            found = {name: convert(name, text) for name, text in batch.items()}
            self._put(target, part, {n: text for n, text in found.items() if text is not None})
        with self._away():
            return int(self._redis.hlen(self._keys.part(target, part)))

    def _batches(self, source: SessionRef, part: str) -> Iterator[Mapping[str, str]]:
        cursor, key = 0, self._keys.part(source, part)
        while True:
            with self._away():
                cursor, batch = self._redis.hscan(key, cursor, count=BATCH)
            yield cast("Mapping[str, str]", batch)
            if not cursor:
                return

    def _put(self, target: SessionRef, part: str, fields: Mapping[str, str]) -> None:
        if fields:
            key = self._keys.part(target, part)
            with self._away(), self._redis.pipeline(transaction=True) as pipe:
                pipe.hset(key, items=[one for pair in fields.items() for one in pair])
                pipe.expire(key, COPY_TTL_S)
                pipe.execute()

    def _list(self, source: SessionRef, target: SessionRef, part: str) -> int:
        start, old, new = 0, self._keys.part(source, part), self._keys.part(target, part)
        with self._away():
            end = int(self._redis.llen(old))
        while start < end:
            with self._away(), self._redis.pipeline(transaction=True) as pipe:
                lines = self._redis.lrange(old, start, min(start + BATCH, end) - 1)
                if not lines:
                    return start
                # A repeated batch replaces itself.
                pipe.ltrim(new, 0, start - 1) if start else pipe.delete(new)
                pipe.rpush(new, *lines)
                pipe.expire(new, COPY_TTL_S)
                pipe.execute()
            start += len(lines)
        return start

    def _step(self, _: str, text: str) -> str | None:
        """A step that has ended; what had not is left out, as if it had never started."""
        record = json.loads(text)
        if record["state"] not in _ENDED:
            return None
        self._cost_micros += record.get("cost_micros", 0)
        return json.dumps({name: v for name, v in record.items() if name not in _OF_ATTEMPTS})

    def _widths(self, source: SessionRef, target: SessionRef) -> None:
        """The widths of each for_each: those of its newest run, for they go when a session ends."""
        widths: dict[str, tuple[int, int]] = {}
        for batch in self._batches(source, "turns"):
            for address, text in batch.items():
                turn = json.loads(text)
                if turn.get("each") and turn.get("verdict") != "skipped":
                    place, _, run = address.rpartition("~")
                    widths[place] = max(widths.get(place, (0, 0)), (int(run), turn["width"]))
        self._put(target, "widths", {place: str(width) for place, (_, width) in widths.items()})
        for batch in self._batches(source, "widths"):
            self._put(target, "widths", batch)


def _turn(address: str, text: str) -> str | None:
    """A turn; one that was open is closed. The root is made by the new session."""
    if not address:
        return None
    turn = json.loads(text)
    if turn["state"] != "closed":
        reason = {**_SUPERSEDED, "at": address}
        turn |= {"state": "closed", "verdict": "cancelled", "reason": reason}
    return json.dumps(turn)


class Recent(Generic[K, V]):
    """Keeps the entries that were used last, and forgets the others.

    >>> recent = Recent[str, int](2)
    >>> recent["a"], recent["b"] = 1, 2
    >>> recent.get("a")
    1
    >>> recent["c"] = 3
    >>> recent.get("b") is None
    True
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries = OrderedDict[K, V]()
        self._changing = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the entry of a key and mark it as used last; None if there is none."""
        with self._changing:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        with self._changing:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)


class _Run(Protocol):
    def __call__(
        self,
        verb: Verb,
        ref: SessionRef,
        program: str,
        arguments: Mapping[str, JsonValue],
        *,
        outcome: str = "",
    ) -> Reply: ...


class Creations:
    """Calls the transitions that create sessions.

    A stored program may be deleted with its last session at any time; the store reports that, and
    the program is sent again.
    """

    def __init__(self, run: _Run, run_each: RunEach) -> None:
        self._run = run
        self._run_each = run_each
        #: Hashes of programs that were stored.
        self._known = Recent[str, bool](KNOWN)

    def create(self, new: NewSession, store: str | None) -> Reply:
        """Create a session, sending its program only if the store lacks it; returns the reply.

        `store` is the id of the expected store.
        """
        arguments = _arguments(new, store)
        reply: Reply | None = None
        if self._known.get(new.program):
            reply = self._run("create", new.ref, new.program, arguments)
        if reply is None or reply.word == "no_program":
            content = new.content()
            arguments |= _routes(content)
            reply = self._run("create", new.ref, new.program, arguments, outcome=content.document)
        if reply.word == "created":
            self._known[new.program] = True
        return reply

    def create_all(self, news: Sequence[NewSession], store: str | None) -> list[Reply]:
        """Create sessions in one round trip, each one atomic by itself; returns a reply for each.

        A program is sent with its first session only, so a later one may get `no_program` if that
        one was refused: create it by itself. A session that competes with another one of these for
        a key or a label has its program with it, since their order decides.
        """
        sent, calls = set[str](), list[tuple[SessionRef, str, Call]]()
        claims = Counter(claim for new in news for claim in _claims(new))
        for new in news:
            arguments, document = _arguments(new, store), ""
            competes = any(claims[claim] > 1 for claim in _claims(new))
            if (competes or new.program not in sent) and not self._known.get(new.program):
                content = new.content()
                arguments |= _routes(content)
                document = content.document
            sent.add(new.program)
            calls.append((new.ref, new.program, Call(arguments, document)))
        replies = self._run_each("create", calls)
        for new, reply in zip(news, replies, strict=True):
            if reply.word == "created":
                self._known[new.program] = True
        return replies

    def fork(self, new: NewSession, store: str | None, more: Mapping[str, JsonValue]) -> Reply:
        """Create a session from records that were copied from another one; returns the reply."""
        content = new.content()
        arguments = {**_arguments(new, store), **_routes(content), **more}
        return self._run("steps_fork", new.ref, new.program, arguments, outcome=content.document)


def _claims(new: NewSession) -> Iterator[tuple[str, str]]:
    """The names of which only one session can have each."""
    for kind, name in (("key", new.idempotency_key), ("label", new.fields.get("label"))):
        if name:
            yield kind, name


def _routes(content: StoredProgram) -> dict[str, JsonValue]:
    return {"routes": dict(content.routes)}


def _arguments(new: NewSession, store: str | None) -> dict[str, JsonValue]:
    """The arguments that both transitions have, without the program."""
    arguments: dict[str, JsonValue] = {
        "root": new.ref.root,
        "program": new.program,
        "fields": dict(new.fields),
        "body": new.body_hash,
        "request": new.request,
        "environment": new.environment,
        "definitions": new.definitions,
        "store": store,
    }
    if new.idempotency_key is not None:
        arguments["key"] = new.idempotency_key
    if new.parent is not None:
        arguments["parent"] = dict(new.parent)
    if new.warnings:
        arguments["warnings"] = [*new.warnings]
    if new.limits is not None:
        arguments["limits"] = dict(new.limits)
    if new.owner is not None:
        arguments["owner"] = {k: v for k, v in new.owner.items() if v is not None}
    return arguments
