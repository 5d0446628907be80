"""The only module that talks to Redis: transitions as scripts, words from Lua as typed answers."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple, cast

from pydantic import JsonValue
from redis import Redis, exceptions
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from app.errors import ProgramStale, StoreAway, StoreFull
from app.keys import Keys, SessionRef
from app.records import Answer, NewSession, StepRecord, TurnRecord
from app.store_audit import Shelves
from app.store_fleet import FleetShelf
from app.store_library import Reader, Verb, text_of
from app.store_scripts import Scripts
from app.store_tokens import TokenShelf
from app.store_watch import Looks
from app.views import Event

Due = Literal["leases", "ready", "errands"]

#: What a script says to who does not know that the session has another program now.
_STALE = "stale program"
#: What Redis answers while it is full, and while it cannot write: loading, without its disk or
#: replicas.
_FULL = re.compile(r"\bOOM\b")
_CANNOT = re.compile(r"\b(LOADING|BUSY|MISCONF|NOREPLICAS|MASTERDOWN|READONLY|CLUSTERDOWN)\b")
_AWAY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.MasterDownError,
)


#: What a client may have open: each thread takes one to read and one for transitions, and the
#: limit of redis-py, 100, would refuse the threads of a large API.
CONNECTIONS = 10_000


def connect(url: str, *, tries: int = 3, timeout_s: float = 5.0) -> Redis:
    """A client whose calls end: each waits so long at most, and is tried so often with back-off."""
    backoff = ExponentialWithJitterBackoff(base=0.05, cap=1.0)
    return Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        socket_keepalive=True,
        health_check_interval=10,
        max_connections=CONNECTIONS,
        retry=Retry(backoff, tries),
    )


#: Made once: `json.dumps` makes one for each call that asks for more than its defaults.
_JSON = json.JSONEncoder(allow_nan=False)


class Given(NamedTuple):
    """What a transition of a session is given."""

    arguments: Mapping[str, JsonValue]
    outcome: str = ""
    ledger: str = ""
    said: Sequence[str] = ()


class Store:
    """Sessions in Redis. Every transition is atomic and bears repetition."""

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
        self._scripts = Scripts(redis, read)

    # Transitions

    def create(self, new: NewSession) -> Answer:
        """Create a session: created, exists (session), conflict, taken (the id) or refused."""
        arguments: dict[str, JsonValue] = {
            "root": new.ref.root,
            "program": new.program,
            "fields": dict(new.fields),
            "routes": {path: json.dumps(route) for path, route in new.routes.items()},
            "body": new.body_hash,
        }
        if new.idempotency_key is not None:
            arguments["key"] = new.idempotency_key
        if new.parent is not None:
            arguments["parent"] = dict(new.parent)
        if new.owner is not None:
            arguments["owner"] = {k: v for k, v in new.owner.items() if v is not None}
        return self.run("create", new.ref, new.program, arguments, outcome=new.document)

    def run(
        self,
        verb: Verb,
        ref: SessionRef,
        program: str,
        arguments: Mapping[str, JsonValue],
        *,
        outcome: str = "",
        ledger: str = "",
        said: Sequence[str] = (),
    ) -> Answer:
        """Run a transition on one session."""
        values = self._values(ref, program, Given(arguments, outcome, ledger, said))
        with self._away():
            return Answer.model_validate_json(self._scripts.call(verb, values))

    def run_all(
        self, verb: Verb, ref: SessionRef, program: str, each: Sequence[Given]
    ) -> list[Answer]:
        """Run a transition several times in one round trip, each time as one of its own.

        Where an error is raised any of them may have been made: run each again by itself.
        """
        calls = [self._values(ref, program, given) for given in each]
        with self._away():
            return [Answer.model_validate_json(a) for a in self._scripts.call_all(verb, calls)]

    def _values(self, ref: SessionRef, program: str, given: Given) -> Sequence[str]:
        keys = (self.keys.base(ref), self.keys.program(program), self.keys.everywhere(""))
        now = self._clock() if self._clock else 0
        told = {k: v for k, v in given.arguments.items() if v is not None}
        told |= {"member": ref.member, "session": ref.id}
        return (*keys, str(now), _JSON.encode(told), given.outcome, given.ledger, *given.said)

    def due(self, *, every_ms: int, limit: int, grace_ms: int, room: bool = False) -> Answer:
        """Look for what is past its time: recent (somebody just did), or due with the lists.

        For `room`, only for the errands that make some.
        """
        with self._away():
            run_id = str(self._redis.info("server")["run_id"])
        arguments: dict[str, JsonValue] = {
            "every_ms": every_ms,
            "limit": limit,
            "run_id": run_id,
            "grace_ms": grace_ms,
            "room": room or None,
        }
        return self.run("due", SessionRef("", ""), "", arguments)

    def limit(self, key: str, limit: str | None, *, seen: Sequence[str] | None = None) -> Answer:
        """Set a key's limit (JSON) or take it away: done, replaced, or changed since it was seen.

        What was seen is one of these texts; `any` stands for whatever there is.
        """
        arguments: dict[str, JsonValue] = {"key": key, "limit": limit}
        if seen is not None:
            arguments["seen"] = "any" if seen == "any" else list(seen)
        return self.run("limit", SessionRef("", ""), "", arguments)

    def due_no_more(self, due: Due, member: str) -> None:
        """Take something off a list of what is due."""
        with self._away():
            self._redis.zrem(self.keys.everywhere(due), member)

    def put_off(self, due: Due, member: str, ms: int) -> None:
        """Let something that is still due be due later."""
        with self._away():
            self._redis.zadd(self.keys.everywhere(due), {member: self.now_ms() + ms}, xx=True)

    def submitted(self, key: str) -> tuple[str, str] | None:
        """The session and the body's hash of an Idempotency-Key, while that session is there."""
        with self._away():
            known = self._redis.get(self.keys.idempotency(key))
        session, _, body = str(known or "").partition("|")
        return (session, body) if session and self.ref(session) else None

    def errand_seen(self, errand: str) -> float | None:
        """Which time of this errand is on the list; None where it is done."""
        with self._away():
            return self._redis.zscore(self.keys.everywhere("errands"), errand)

    def errand_done(self, errand: str, seen: float | None = None) -> None:
        """Take an errand off the list, unless it was put there anew since it was seen."""
        if seen is None:
            self.due_no_more("errands", errand)
        else:
            arguments: dict[str, JsonValue] = {"errand": errand, "seen": seen}
            self.run("errand_done", SessionRef("", ""), "", arguments)

    def mark(self) -> str:
        """A name that no other store has, for what lies elsewhere and belongs to this one."""
        key = self.keys.everywhere("store")
        with self._away():
            self._redis.set(key, secrets.token_hex(16), nx=True)
            return str(self._redis.get(key))

    def known(self, sessions: Sequence[str]) -> set[str]:
        """Those of the sessions that are there."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for session in sessions:
                pipe.exists(self.keys.id(session))
            answers = pipe.execute()
        return {session for session, found in zip(sessions, answers, strict=True) if found}

    def due_hooks(self, limit: int) -> list[str]:
        """Webhooks whose time has come, each as ``session|root|delivery``."""
        key, now = self.keys.everywhere("hooks"), self.now_ms()
        with self._away():
            return _texts(self._redis.zrangebyscore(key, "-inf", now, start=0, num=limit))

    # Reading

    def ping(self) -> None:
        """Raises StoreAway unless Redis answers."""
        with self._away():
            self._redis.ping()

    def ref(self, session: str) -> SessionRef | None:
        """The session and its root, or None where there is no such session."""
        with self._away():
            root = self._redis.get(self.keys.id(session))
        return SessionRef(session, str(root)) if root else None

    def fields(self, ref: SessionRef) -> dict[str, str]:
        """The session's own hash; empty where it is gone."""
        with self._away():
            return _map(self._redis.hgetall(self.keys.part(ref, "session")))

    def values(self, ref: SessionRef, part: str, fields: Sequence[str]) -> dict[str, str]:
        """Some fields of one of the session's hashes, without those that are not there."""
        if not fields:
            return {}
        with self._away():
            found = self._scripts.fields(self.keys.part(ref, part), fields)
        return {
            field: value.decode()
            for field, value in zip(fields, found, strict=True)
            if value is not None
        }

    def program(self, program: str) -> str | None:
        """The program's document, or None where no session runs it any more."""
        with self._away():
            found = self._redis.hget(self.keys.program(program), "document")
        return None if found is None else str(found)

    def steps(self, ref: SessionRef, addresses: Sequence[str]) -> dict[str, StepRecord]:
        """The records of these steps, without those that are still pending."""
        found = self.values(ref, "steps", addresses)
        return {a: StepRecord.model_validate_json(text) for a, text in found.items()}

    def names(self, ref: SessionRef, part: str) -> list[str]:
        """The names of all fields of one of the session's hashes."""
        with self._away():
            return _texts(self._redis.hkeys(self.keys.part(ref, part)))

    def turns(self, ref: SessionRef, ids: Sequence[str]) -> dict[str, TurnRecord]:
        """The records of these turns, without those that never opened."""
        found = self.values(ref, "turns", ids)
        return {a: TurnRecord.model_validate_json(text) for a, text in found.items()}

    def members(self, ref: SessionRef, part: str, limit: int = -1) -> list[str]:
        """What one of the session's sorted sets holds, in the order of names."""
        with self._away():
            end = limit - 1 if limit > 0 else -1
            return _texts(self._redis.zrange(self.keys.part(ref, part), 0, end))

    def size(self, ref: SessionRef, part: str) -> int:
        """How much one of the session's sorted sets holds."""
        with self._away():
            return int(self._redis.zcard(self.keys.part(ref, part)))

    def lines(self, ref: SessionRef, part: str, start: int, end: int) -> list[str]:
        """Some lines of one of the session's lists."""
        with self._away():
            return _texts(self._redis.lrange(self.keys.part(ref, part), start, end))

    def said(self, ref: SessionRef, start: int, most: int) -> tuple[int, list[str]]:
        """Records of the transcript from this place on, and how many were dropped before all."""
        while True:
            dropped = self._unsaid(ref)
            place = max(0, start - dropped)
            lines = self.lines(ref, "transcript", place, place + most - 1)
            if self._unsaid(ref) == dropped:
                return dropped, lines

    def _unsaid(self, ref: SessionRef) -> int:
        return int(self.values(ref, "session", ["unsaid"]).get("unsaid", 0))

    def outcomes(self, ref: SessionRef) -> dict[str, str]:
        """What came of each step, by address."""
        with self._away():
            return _map(self._redis.hgetall(self.keys.part(ref, "out")))

    def children(self, ref: SessionRef) -> set[str]:
        """The ids of the session's children."""
        with self._away():
            return set(_texts(self._redis.smembers(self.keys.part(ref, "children"))))

    def events(
        self, after: Mapping[SessionRef, str], *, limit: int, block_ms: int
    ) -> dict[SessionRef, list[Event]]:
        """What happened after these ids, in order; waits up to `block_ms` for the first."""
        streams: dict[bytes | str | memoryview[int], int | bytes | str | memoryview[int]] = {
            self.keys.part(ref, "events"): start for ref, start in after.items()
        }
        by_key = {self.keys.part(ref, "events"): ref for ref in after}
        block = min(block_ms, 2000) or None  # longer than the socket's time-out would fail
        with self._away():
            found = self._redis.xread(streams, count=limit, block=block)
        pairs = found.items() if isinstance(found, dict) else found or []
        return {
            by_key[str(key)]: [_event(entry) for entry in _entries(entries)]
            for key, entries in pairs
        }

    def index(
        self, status: str | None, *, before: tuple[float, str], limit: int
    ) -> list[tuple[str, float]]:
        """Session ids of a status (all: None), the newest first, from just before a time and id."""
        key = self.keys.status(status) if status else self.keys.everywhere("sessions")
        start = 0
        while True:
            with self._away():
                rows = self._redis.zrevrangebyscore(
                    key, before[0], "-inf", start=start, num=limit, withscores=True
                )
            found = [(s, float(at)) for s, at in cast("list[tuple[str, float]]", rows)]
            later = [(s, at) for s, at in found if (at, s) < before]
            if later or len(found) < limit:
                return later
            start += limit  # all of them are of one ms, and were shown before

    def fields_of(self, sessions: Sequence[str]) -> dict[str, tuple[SessionRef, dict[str, str]]]:
        """The hashes of many sessions in two calls, without those that are gone."""
        if not sessions:
            return {}
        with self._away():
            roots = self._redis.mget([self.keys.id(session) for session in sessions])
            pairs = zip(sessions, cast("list[str | None]", roots), strict=True)
            refs = [SessionRef(session, root) for session, root in pairs if root]
            with self._redis.pipeline(transaction=False) as pipe:
                for ref in refs:
                    pipe.hgetall(self.keys.part(ref, "session"))
                found = [_map(fields) for fields in pipe.execute()]
        return {ref.id: (ref, f) for ref, f in zip(refs, found, strict=True) if "status" in f}

    def unlist(self, session: str) -> None:
        """Take a session that is gone off the lists."""
        with self._away():
            self._redis.zrem(self.keys.everywhere("sessions"), session)

    def fleet(self) -> FleetShelf:
        """Where workers, locks and limits are kept."""
        return FleetShelf(self._redis, self.keys, self._away)

    def tokens(self) -> TokenShelf:
        """Where API tokens are kept."""
        return TokenShelf(self._redis, self.keys, self._away)

    def looks(self) -> Looks:
        """What a look at the whole fleet reads."""
        return Looks(self._redis, self.keys, self._away)

    def shelves(self) -> Shelves:
        """Every key that there is, for the audit."""
        return Shelves(self._redis, self.keys, self._away)

    def now_ms(self) -> int:
        """The clock that all times in the store are of."""
        if self._clock:
            return self._clock()
        with self._away():
            seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    @contextmanager
    def _away(self) -> Iterator[None]:
        try:
            yield
        except _AWAY as error:
            raise StoreAway(self._where()) from error
        except exceptions.ResponseError as error:
            if isinstance(error, exceptions.OutOfMemoryError) or _FULL.search(str(error)):
                raise StoreFull(self._where()) from error
            if _CANNOT.search(str(error)):
                raise StoreAway(self._where()) from error
            if _STALE in str(error):
                raise ProgramStale from error
            raise

    def _where(self) -> str:
        given = self._redis.connection_pool.connection_kwargs
        return str(given.get("path") or f"{given.get('host')}:{given.get('port')}")


def _texts(found: object) -> list[str]:
    """What redis-py says may be bytes is text: our connections decode."""
    return cast("list[str]", found)


def _map(found: object) -> dict[str, str]:
    return cast("dict[str, str]", found)


def _entries(entries: object) -> Iterator[tuple[str, dict[str, str]]]:
    """Stream entries of either protocol: RESP3 wraps them once more."""
    assert isinstance(entries, list)
    for entry in entries:
        if isinstance(entry, list):
            yield from ((str(i), dict(f)) for i, f in entry)
        else:
            yield str(entry[0]), dict(entry[1])


def _event(entry: tuple[str, dict[str, str]]) -> Event:
    id_, fields = entry
    return Event(
        id=id_,
        type=fields["t"],
        at_ms=int(fields["at"]),
        address=fields["a"] or None,
        fields=json.loads(fields["d"]) if fields["d"] else {},
    )
