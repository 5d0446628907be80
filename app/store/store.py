"""The store: runs transitions in Redis, and reads records as typed values."""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Generic, Literal, TypeVar, cast, get_args

from pydantic import JsonValue
from redis import Redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from app.core.addresses import SessionRef
from app.core.records import NewSession, Reply, StepRecord, StoredProgram, TurnRecord
from app.store.artifacts import ArtifactReads, OutputReads
from app.store.changes import NONE, read_event, stream_entries
from app.store.copies import Copies
from app.store.errors import Away, readable_replies, translate_errors
from app.store.fleet import FleetRecords, KeyScanner, OverviewReads
from app.store.identity import Identity, IdentityStore, state_of
from app.store.keys import Keys
from app.store.script_library import Reader, Verb, text_of
from app.store.script_runner import Ask, Call, Scripts, decoded_map, ms_of_time
from app.store.session_reads import SessionIndex, SessionReads
from app.store.tokens import TokenStore
from leadhand.errors import KeyDamaged, StoreUnknown
from leadhand.models.views.step import Event

Due = Literal["leases", "ready", "errands"]
K = TypeVar("K")
P = TypeVar("P")
V = TypeVar("V")
#: The number of programs that a process remembers as stored.
KNOWN = 1024
#: Events of a session that are read at once, where all are read.
EVENTS = 1000
#: Maximum connections of a client. Each thread takes one for reads and one for transitions;
#: redis-py's default of 100 is too low for a large API.
CONNECTIONS = 10_000


def connect(
    url: str, *, tries: int = 3, timeout_s: float = 5.0, protocol: int | None = None
) -> Redis:
    """Creates a Redis client with time-outs, and with retries by exponential back-off."""
    backoff = ExponentialWithJitterBackoff(base=0.05, cap=1.0)
    tcp = {"socket_connect_timeout": timeout_s, "socket_keepalive": True}
    return Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=timeout_s,
        **({} if url.startswith("unix:") else tcp),
        health_check_interval=10,
        max_connections=CONNECTIONS,
        protocol=protocol,
        retry=Retry(backoff, tries),
    )


#: Shared, because `json.dumps` creates an encoder per call unless all options are defaults.
_JSON = json.JSONEncoder(allow_nan=False)


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


class Store:
    """Sessions in Redis. Every transition is atomic and idempotent."""

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str = "lh",
        clock: Callable[[], int] | None = None,
        read: Reader = text_of,
    ) -> None:
        self._redis = redis
        self._clock = clock
        self.keys = Keys(prefix)
        #: Returns the expected identity of the store, checked on each new connection.
        self.expected_identity: Callable[[], Identity | None] = lambda: None
        self._scripts = Scripts(redis, read, self._verify)
        self._read = read
        #: Hashes of programs that were stored.
        self._stored = Recent[str, bool](KNOWN)

    # Transitions

    def create(self, new: NewSession) -> Reply:
        """Create a session; the reply is created, exists, conflict, taken (id) or refused.

        Its program is sent only if the store may lack it: it may be deleted with its last session
        at any time, and is then sent again.
        """
        arguments, program = _arguments(new, self.expected_id()), new.program.hash
        reply: Reply | None = None
        if self._stored.get(program):
            reply = self.run("create", new.ref, program, arguments)
        if reply is None or reply.word == "no_program":
            content = new.content()
            arguments |= _routes(content)
            reply = self.run("create", new.ref, program, arguments, outcome=content.document)
        if reply.word == "created":
            self._stored[program] = True
        return reply

    def create_all(self, news: Sequence[NewSession]) -> list[Reply]:
        """Create sessions in one round trip, each one atomic by itself; replies as `create`.

        A program is sent with its first session only, so a later one may get `no_program` if that
        one was refused: create it by itself. A session that competes with another one of these for
        a key or a label has its program with it, since their order decides.
        """
        sent, calls = set[str](), list[tuple[SessionRef, str, Call]]()
        claims = Counter(claim for new in news for claim in _claims(new))
        store = self.expected_id()
        for new in news:
            arguments, document, program = _arguments(new, store), "", new.program.hash
            competes = any(claims[claim] > 1 for claim in _claims(new))
            if (competes or program not in sent) and not self._stored.get(program):
                content = new.content()
                arguments |= _routes(content)
                document = content.document
            sent.add(program)
            calls.append((new.ref, program, Call(arguments, document)))
        replies = self.run_each("create", calls)
        for new, reply in zip(news, replies, strict=True):
            if reply.word == "created":
                self._stored[new.program.hash] = True
        return replies

    def fork(self, new: NewSession, more: Mapping[str, JsonValue]) -> Reply:
        """Create a session from copied records; replies as `create`, or torn if some are gone."""
        content = new.content()
        arguments = {**_arguments(new, self.expected_id()), **_routes(content), **more}
        program = new.program.hash
        return self.run("steps_fork", new.ref, program, arguments, outcome=content.document)

    def run(
        self,
        verb: Verb,
        ref: SessionRef,
        program: str,
        arguments: Mapping[str, JsonValue],
        *,
        outcome: str = "",
        ledger: str = "",
        transcript: Sequence[str] = (),
    ) -> Reply:
        """Run the Lua function of a verb on one session, atomically; returns its reply."""
        values = self._values(ref, program, Call(arguments, outcome, ledger, transcript))
        with self._translate_errors():
            return Reply.model_validate_json(self._scripts.call(verb, values))

    def run_all(
        self, verb: Verb, ref: SessionRef, program: str, each: Sequence[Call]
    ) -> list[Reply]:
        """Run a Lua function once per call on one session, in one round trip; returns replies."""
        return self.run_each(verb, [(ref, program, call) for call in each])

    def run_each(self, verb: Verb, each: Sequence[tuple[SessionRef, str, Call]]) -> list[Reply]:
        """Run a Lua function on several sessions in one round trip, each atomic by itself.

        After an error any of them may have run: run each one again by itself.
        """
        calls = [self._values(ref, program, call) for ref, program, call in each]
        with self._translate_errors():
            return [Reply.model_validate_json(a) for a in self._scripts.call_all(verb, calls)]

    def _values(self, ref: SessionRef, program: str, call: Call) -> Sequence[str]:
        keys = (self.keys.base(ref), self.keys.program(program), self.keys.everywhere(""))
        now = self._clock() if self._clock else 0
        arguments = {k: v for k, v in call.arguments.items() if v is not None}
        arguments |= {"member": ref.member, "session": ref.id}
        texts = (_JSON.encode(arguments), call.outcome, call.ledger, *call.transcript)
        return (*keys, str(now), *texts)

    def due(self, *, every_ms: int, limit: int, grace_ms: int, room: bool = False) -> Reply:
        """List overdue entries: replies `recent` (another process just swept), or `due` with lists.

        Replies `other_store` and does nothing if the store is not the expected one.

        With `room`, lists only messages whose handling frees memory.
        """
        with self._translate_errors():
            run_id = str(self._redis.info("server")["run_id"])
        arguments: dict[str, JsonValue] = {
            "every_ms": every_ms,
            "limit": limit,
            "run_id": run_id,
            "grace_ms": grace_ms,
            "room": room or None,
        }
        if (expected_identity := self.expected_identity()) is not None:
            arguments |= {"store": expected_identity.id, "sweeps": expected_identity.oldest}
        return self.run("due", SessionRef("", ""), "", arguments)

    def accept(self, arguments: Mapping[str, JsonValue]) -> Reply:
        """Accept the data in Redis as this fleet's store, under the new id in `arguments`."""
        values = self._values(SessionRef("", ""), "", Call(arguments))
        with self._translate_errors():
            scripts = Scripts(self._redis, self._read, None)
            try:
                return Reply.model_validate_json(scripts.call("accept", values))
            finally:
                scripts.close()

    def limit(self, key: str, limit: str | None, *, seen: Sequence[str] | None = None) -> Reply:
        """Set or remove (None) a key's limit; replies done, replaced, changed or other_store.

        `seen` lists the accepted current values (JSON); `any` accepts any existing limit.
        """
        arguments: dict[str, JsonValue] = {"key": key, "limit": limit, "store": self.expected_id()}
        if seen is not None:
            arguments["seen"] = "any" if seen == "any" else list(seen)
        return self.run("limit", SessionRef("", ""), "", arguments)

    def remove_due(self, due: Due, member: str) -> None:
        """Remove an entry from a sorted set of due entries."""
        with self._translate_errors():
            self._redis.zrem(self.keys.everywhere(due), member)

    def postpone(self, due: Due, member: str, ms: int) -> None:
        """Set the time of a due entry to `ms` from now, if it is still listed."""
        with self._translate_errors():
            self._redis.zadd(self.keys.everywhere(due), {member: self.now_ms() + ms}, xx=True)

    def next_due_ms(self) -> int | None:
        """Read when the next entry is due for the sweep, perhaps in the past; None if none is."""
        with self._translate_errors(), self._redis.pipeline(transaction=False) as pipe:
            for due in get_args(Due):
                pipe.zrange(self.keys.everywhere(due), 0, 0, withscores=True)
            firsts = cast("list[list[tuple[str, float]]]", pipe.execute())
        return min((int(score) for first in firsts for _, score in first), default=None)

    def find_submitted(self, key: str) -> tuple[str, str] | None:
        """Read the session and body hash of an Idempotency-Key; None if the session is gone."""
        with self._translate_errors():
            existing = self._redis.get(self.keys.idempotency(key))
        session, _, body = str(existing or "").partition("|")
        return (session, body) if session and self.ref(session) else None

    def errand_score(self, errand: str) -> float | None:
        """Read the score of an outbox message; None if it is done."""
        with self._translate_errors():
            return self._redis.zscore(self.keys.everywhere("errands"), errand)

    def remove_errand(self, errand: str, seen: float | None = None) -> None:
        """Remove an outbox message, unless it was added again since `seen`."""
        if seen is None:
            self.remove_due("errands", errand)
        else:
            arguments: dict[str, JsonValue] = {"errand": errand, "seen": seen}
            self.run("outbox_done", SessionRef("", ""), "", arguments)

    def existing(self, sessions: Sequence[str]) -> set[str]:
        """Return which of these sessions exist."""
        with self._translate_errors(), self._redis.pipeline(transaction=False) as pipe:
            for session in sessions:
                pipe.exists(self.keys.id(session))
            answers = pipe.execute()
        return {session for session, found in zip(sessions, answers, strict=True) if found}

    def due_hooks(self, limit: int) -> list[str]:
        """Read at most `limit` due webhook deliveries, each as ``session|root|delivery``."""
        key, now = self.keys.everywhere("hooks"), self.now_ms()
        with self._translate_errors():
            return _texts(self._redis.zrangebyscore(key, "-inf", now, start=0, num=limit))

    def close(self) -> None:
        """Close all idle connections."""
        self._scripts.close()
        self._redis.close()

    # Reading

    def workers_now(self) -> tuple[dict[str, str], int]:
        """Read all workers' inventories, expired ones included, and the server's time in ms."""
        everywhere = self.keys.everywhere("workers")
        with self._translate_errors():
            found, at = self._scripts.ask([("HGETALL", everywhere), ("TIME",)])
        return decoded_map(found), self._clock() if self._clock else ms_of_time(at)

    def ping(self) -> None:
        """Raise StoreAway unless Redis answers."""
        with self._translate_errors():
            self._redis.ping()

    def ref(self, session: str) -> SessionRef | None:
        """Look up a session's root; returns both as a reference, None if it does not exist."""
        with self._translate_errors():
            root = self._redis.get(self.keys.id(session))
        return SessionRef(session, str(root)) if root else None

    def fields(self, ref: SessionRef) -> dict[str, str]:
        """Read the hash of a session; empty if it was deleted."""
        with self._translate_errors():
            return _map(self._redis.hgetall(self.keys.part(ref, "session")))

    def values(self, ref: SessionRef, part: str, fields: Sequence[str]) -> dict[str, str]:
        """Read some fields of one of the session's hashes, without missing ones."""
        if not fields:
            return {}
        with self._translate_errors():
            found = self._scripts.fields(self.keys.part(ref, part), fields)
        return {
            field: value.decode()
            for field, value in zip(fields, found, strict=True)
            if value is not None
        }

    def program(self, program: str) -> str | None:
        """Read the document of the program with this hash; None if no session uses it any more."""
        with self._translate_errors():
            found = self._redis.hget(self.keys.program(program), "document")
        return None if found is None else str(found)

    def steps(self, ref: SessionRef, addresses: Sequence[str]) -> dict[str, StepRecord]:
        """Read the records of these steps, without those that are still pending."""
        found = self.values(ref, "steps", addresses)
        return {a: StepRecord.model_validate_json(text) for a, text in found.items()}

    def names(self, ref: SessionRef, part: str) -> list[str]:
        """Read the names of all fields of one of the session's hashes."""
        with self._translate_errors():
            return _texts(self._redis.hkeys(self.keys.part(ref, part)))

    def turns(self, ref: SessionRef, ids: Sequence[str]) -> dict[str, TurnRecord]:
        """Read the records of these turns (runs of a loop or block), without unopened ones."""
        found = self.values(ref, "turns", ids)
        return {a: TurnRecord.model_validate_json(text) for a, text in found.items()}

    def members(self, ref: SessionRef, part: str, limit: int = -1) -> list[str]:
        """Read the members of one of the session's sorted sets, ordered by name."""
        with self._translate_errors():
            end = limit - 1 if limit > 0 else -1
            return _texts(self._redis.zrange(self.keys.part(ref, part), 0, end))

    def count_members(self, ref: SessionRef, part: str) -> int:
        """Count the members of a session's sorted set, such as its live or its parked steps."""
        with self._translate_errors():
            return int(self._redis.zcard(self.keys.part(ref, part)))

    def lines(self, ref: SessionRef, part: str, start: int, end: int) -> list[str]:
        """Read a range of one of the session's lists."""
        with self._translate_errors():
            return _texts(self._redis.lrange(self.keys.part(ref, part), start, end))

    def transcript(self, ref: SessionRef, start: int, most: int) -> tuple[int, list[str]]:
        """Read `most` transcript records from a position on, and the number of dropped records."""
        while True:
            dropped = self._dropped(ref)
            place = max(0, start - dropped)
            lines = self.lines(ref, "transcript", place, place + most - 1)
            if self._dropped(ref) == dropped:
                return dropped, lines

    def _dropped(self, ref: SessionRef) -> int:
        return int(self.values(ref, "session", ["unsaid"]).get("unsaid", 0))

    def plan(self, ref: SessionRef) -> dict[str, str]:
        """Read the hash of the session's plan; empty if it has none."""
        with self._translate_errors():
            return _map(self._redis.hgetall(self.keys.part(ref, "plan")))

    def outcomes(self, ref: SessionRef) -> dict[str, str]:
        """Read the outcomes of all steps of a session (JSON), by step address."""
        with self._translate_errors():
            return _map(self._redis.hgetall(self.keys.part(ref, "out")))

    def children(self, ref: SessionRef) -> set[str]:
        """Read the ids of a session's child sessions."""
        with self._translate_errors():
            return set(_texts(self._redis.smembers(self.keys.part(ref, "children"))))

    def events(
        self, after: Mapping[SessionRef, str], *, limit: int, block_ms: int
    ) -> dict[SessionRef, list[Event]]:
        """Read events of sessions after these ids, in order; waits up to `block_ms` for one."""
        streams: dict[bytes | str | memoryview[int], int | bytes | str | memoryview[int]] = {
            self.keys.part(ref, "events"): start for ref, start in after.items()
        }
        by_key = {self.keys.part(ref, "events"): ref for ref in after}
        block = min(block_ms, 2000) or None  # must be shorter than the socket's time-out
        with self._translate_errors():
            found = self._redis.xread(streams, count=limit, block=block)
        pairs = found.items() if isinstance(found, dict) else found or []
        return {
            by_key[str(key)]: [read_event(entry) for entry in stream_entries(entries)]
            for key, entries in pairs
        }

    def all_events(self, ref: SessionRef) -> list[Event]:
        """Read all stored events of a session, in order."""
        found: list[Event] = []
        while True:
            after = found[-1].id if found else NONE
            more = self.events({ref: after}, limit=EVENTS, block_ms=0).get(ref, [])
            found += more
            if len(more) < EVENTS:
                return found

    def fields_of(
        self, sessions: Sequence[str], damaged: list[str] | None = None
    ) -> dict[str, tuple[SessionRef, dict[str, str]]]:
        """Read the hashes of many sessions in two calls, without deleted ones.

        A session whose record has a wrong type is not deleted: it is added to `damaged`. Raises
        KeyDamaged if that is not given.
        """
        if not sessions:
            return {}
        with self._translate_errors():
            roots = self._redis.mget([self.keys.id(session) for session in sessions])
            pairs = [*zip(sessions, cast("list[str | None]", roots), strict=True)]
            refs = [SessionRef(session, root) for session, root in pairs if root]
            rootless = [session for session, root in pairs if not root]
            with self._redis.pipeline(transaction=False) as pipe:
                for ref in refs:
                    pipe.hgetall(self.keys.part(ref, "session"))
                for session in rootless:
                    pipe.type(self.keys.id(session))  # MGET skips a key of a wrong type
                replies = readable_replies(pipe.execute(raise_on_error=False))
        found = replies[: len(refs)]
        bad = [ref.id for ref, fields in zip(refs, found, strict=True) if fields is None]
        types = zip(rootless, replies[len(refs) :], strict=True)
        bad += [session for session, type_ in types if type_ not in ("none", "string")]
        if damaged is None and bad:
            raise KeyDamaged
        if damaged is not None:
            damaged += bad
        return {
            ref.id: (ref, _map(fields))
            for ref, fields in zip(refs, found, strict=True)
            if fields is not None and "status" in fields
        }

    def session_index(self) -> SessionIndex:
        """Return the object that reads the indexes of sessions."""
        return self.part(SessionIndex)

    def session_reads(self) -> SessionReads:
        """Return the object that reads what views of sessions show."""
        return SessionReads(self._scripts, self.keys, self._translate_errors, self._clock)

    def fleet(self) -> FleetRecords:
        """Return the object that reads and writes records of workers, locks and limits."""
        return self.part(FleetRecords)

    def identity(self) -> IdentityStore:
        """Return the object that reads and writes the identity of this store."""
        away = self._translate_errors
        return IdentityStore(self._redis, self._scripts, self.keys, away, self._clock)

    def tokens(self) -> TokenStore:
        """Return the object that reads and writes the records of API tokens."""
        return self.part(TokenStore)

    def part(self, kind: Callable[[Redis, Keys, Away], P]) -> P:
        """Create an object of this class with the store's Redis client and keys."""
        return kind(self._redis, self.keys, self._translate_errors)

    def outputs(self) -> OutputReads:
        """Return the object that reads live output."""
        return self.part(OutputReads)

    def artifacts(self) -> ArtifactReads:
        """Return the object that reads references to artifacts."""
        return self.part(ArtifactReads)

    def copies(self) -> Copies:
        """Return the object that copies the records of sessions."""
        return self.part(Copies)

    def overview(self) -> OverviewReads:
        """Return the object that reads the fleet overview."""
        return self.part(OverviewReads)

    def key_scanner(self) -> KeyScanner:
        """Return the object that scans all keys, for the audit."""
        return self.part(KeyScanner)

    def now_ms(self) -> int:
        """Read the time of the Redis server, which all stored times use."""
        if self._clock:
            return self._clock()
        with self._translate_errors():
            seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def expected_id(self) -> str | None:
        """Return the id of the store that this process expects; None before it is known."""
        expected = self.expected_identity()
        return None if expected is None else expected.id

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(self.where())

    def _verify(self, ask: Ask) -> None:
        """Compare the store of a new connection with the expected one. Raises StoreUnknown."""
        expected_identity = self.expected_identity()
        if expected_identity is None:
            return
        everywhere = self.keys.everywhere
        id_, sweeps = ask([("GET", everywhere("store")), ("HGET", everywhere("epoch"), "sweeps")])
        found = Identity(id_, int(sweeps or 0)) if id_ else None
        state = state_of(expected_identity, found)
        if state != "known":
            raise StoreUnknown(self.where(), state, expected_identity.id, id_ or "")

    def where(self) -> str:
        """Return the location of Redis for messages: its host and port, or its socket's path."""
        target = self._redis.connection_pool.connection_kwargs
        return str(target.get("path") or f"{target.get('host')}:{target.get('port')}")


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
        "program": new.program.hash,
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


def _texts(found: object) -> list[str]:
    """Narrows redis-py's type: connections decode responses, so they are texts."""
    return cast("list[str]", found)


def _map(found: object) -> dict[str, str]:
    return cast("dict[str, str]", found)
