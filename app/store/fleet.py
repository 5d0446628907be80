"""Fleet-wide records in Redis: inventories, locks, limits, secrets, definitions, counters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple, cast

from app.core.addresses import SessionRef, path_of
from app.core.environment import Definitions, parse_definitions
from app.core.folders import folders_above, is_folder, prefix_below
from app.store.errors import StorePart, readable_replies

#: Maximum lines that are read per overlapping folder.
SHOWN = 20
#: How long workers report on definitions after somebody asked.
ASKED_S = 900
Kind = Literal["zset", "hash", "set"]


class FleetRecords(StorePart):
    """Reads and writes the fleet-wide records."""

    def publish_inventory(self, name: str, inventory: str) -> None:
        """Store a worker's inventory (what it offers) under its name, replacing the last one."""
        with self._away():
            self._redis.hset(self._keys.everywhere("workers"), name, inventory)

    def delete_inventory(self, name: str) -> None:
        """Delete the stored inventory (what it offers) of the worker with this name."""
        with self._away():
            self._redis.hdel(self._keys.everywhere("workers"), name)

    def workers(self) -> dict[str, str]:
        """Read the inventories of all workers, by worker name, expired ones included."""
        with self._away():
            return cast("dict[str, str]", self._redis.hgetall(self._keys.everywhere("workers")))

    def worker(self, name: str) -> str | None:
        """Read the inventory of one worker, also an expired one; None if there is none."""
        with self._away():
            return cast("str | None", self._redis.hget(self._keys.everywhere("workers"), name))

    def first_proof(self, proof: str) -> str:
        """Store the hash of the fleet's secret if there is none; returns the stored hash."""
        key = self._keys.everywhere("secret")
        with self._away():
            self._redis.set(key, proof, nx=True)
            return str(self._redis.get(key) or proof)

    def proof(self) -> str | None:
        """Read the stored hash of the fleet's shared secret; None if there is none."""
        with self._away():
            return cast("str | None", self._redis.get(self._keys.everywhere("secret")))

    def replace_proof(self, proof: str) -> None:
        """Overwrite the stored hash of the fleet's shared secret."""
        with self._away():
            self._redis.set(self._keys.everywhere("secret"), proof)

    def use_secrets(self, marks: str, until_ms: int) -> None:
        """Record until when (ms) a process uses the secrets with these fingerprints."""
        with self._away():
            self._redis.hset(self._keys.everywhere("secrets-used"), marks, str(until_ms))

    def secrets_in_use(self) -> dict[str, str]:
        """Read until when (ms) processes use secrets, by the secrets' fingerprints."""
        with self._away():
            return cast(
                "dict[str, str]", self._redis.hgetall(self._keys.everywhere("secrets-used"))
            )

    def delete_used_secrets(self) -> None:
        """Delete all records of which secrets processes use."""
        with self._away():
            self._redis.delete(self._keys.everywhere("secrets-used"))

    def record_refusal(self, worker: str, text: str) -> None:
        """Record why a worker refused to start."""
        with self._away():
            self._redis.hset(self._keys.everywhere("refused"), worker, text)

    def delete_refusals(self, workers: Sequence[str]) -> None:
        """Delete the recorded refusals of these workers."""
        if workers:
            with self._away():
                self._redis.hdel(self._keys.everywhere("refused"), *workers)

    def refusals(self) -> dict[str, str]:
        """Read why workers refused to start (JSON), by worker name."""
        with self._away():
            return cast("dict[str, str]", self._redis.hgetall(self._keys.everywhere("refused")))

    def holders(self, lock: str) -> list[str]:
        """Read the attempts or turns that hold a lock, each as ``session|root|address``."""
        return self._lines_of("holds", lock)

    def tickets(self, lock: str) -> list[str]:
        """Read the waiters for a lock in order, each as ``order<session|root|address``."""
        return self._lines_of("tickets", lock)

    def overlapping(self, part: Literal["holds", "tickets"], lock: str) -> list[tuple[str, str]]:
        """Read the first holders or waiters of a lock, and of overlapping folders' locks.

        Each is the lock and what is recorded for it, as `holders` or `tickets` return it.
        """
        key, ranges = self._keys.everywhere(part), [(f"[{lock}<", f"({lock}=")]
        if is_folder(lock):
            below = prefix_below(lock)
            ranges += [(f"[{above}<", f"({above}=") for above in folders_above(lock)]
            ranges.append((f"({below}", f"({below[:-1]}0"))
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for low, high in ranges:
                pipe.zrangebylex(key, low, high, start=0, num=SHOWN)
            found = cast("list[list[str]]", pipe.execute())
        lines = dict.fromkeys(line.partition("<") for some in found for line in some)
        return [(name, rest) for name, _, rest in lines]

    def named_locks(self, root: str, name: str | None = None) -> dict[str, str]:
        """Read the named locks of a tree of sessions, or one of them (JSON), by name."""
        key, prefix = self._keys.everywhere("named"), f"lock:{root}:"
        with self._away():
            if name is not None:
                found = cast("str | None", self._redis.hget(key, prefix + name))
                return {} if found is None else {name: found}
            rows = dict(self._redis.hscan_iter(key, match=f"{prefix}*", count=500))
        return {lock.removeprefix(prefix): text for lock, text in sorted(rows.items())}

    def slot(self, lock: str) -> float | None:
        """Read when (ms) a key's rate limit allows the next attempt; None if not recorded."""
        with self._away():
            slot = cast("str | None", self._redis.hget(self._keys.everywhere("rates"), lock))
        return None if slot is None else float(slot)

    def limits(self) -> dict[str, str]:
        """Read all concurrency and rate limits (JSON), by key, such as `agent:claude`."""
        with self._away():
            return cast("dict[str, str]", self._redis.hgetall(self._keys.everywhere("limits")))

    def record_owed_export(self, session: str, why: str) -> None:
        """Record why a session's export could not be written, for which it is kept."""
        with self._away():
            self._redis.hset(self._keys.everywhere("owed"), session, why)

    def owed_exports(self) -> dict[str, str]:
        """Read which sessions are kept because their export failed, and why."""
        with self._away():
            return cast("dict[str, str]", self._redis.hgetall(self._keys.everywhere("owed")))

    def _lines_of(self, part: str, lock: str) -> list[str]:
        key, low, high = self._keys.everywhere(part), f"[{lock}<", f"({lock}="
        with self._away():
            lines = cast("list[str]", self._redis.zrangebylex(key, low, high))
        return [line[len(lock) + 1 :] for line in lines]


class StoredStep(NamedTuple):
    """A step's stored record and route, and its session's place."""

    ref: SessionRef
    address: str
    record: str
    route: str
    place: str


class OverdueCount(NamedTuple):
    """The size of a timed list, its number of overdue entries, and the oldest one's time."""

    entries: int
    past: int
    oldest_ms: float | None


class OverviewReads(StorePart):
    """Reads with few round trips and bounded batches."""

    def next(self, part: str, limit: int) -> list[StoredStep]:
        """Read the first steps, with record and route, in the sorted set `leases` or `ready`.

        Those of a session with a key of a wrong type are left out, as in `fields` and others.
        """
        with self._away():
            found = self._redis.zrange(self._keys.everywhere(part), 0, limit - 1)
        members = [member.split("|", 2) for member in cast("list[str]", found)]
        refs = [(SessionRef(session, root), address) for session, root, address in members]
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref, address in refs:
                pipe.hget(self._keys.part(ref, "steps"), address)
                pipe.hmget(self._keys.part(ref, "session"), ["program", "place"])
            replies = readable_replies(pipe.execute(raise_on_error=False))
            sessions = [values or (None, None) for values in replies[1::2]]
            for (_, address), (program, _) in zip(refs, sessions, strict=True):
                pipe.hget(self._keys.program(program or ""), f"/{path_of(address)}")
            routes = readable_replies(pipe.execute(raise_on_error=False))
        return [
            StoredStep(ref, address, record, route, place or "")
            for (ref, address), record, (_, place), route in zip(
                refs, replies[::2], sessions, routes, strict=True
            )
            if record and route
        ]

    def past(self, part: str, now_ms: int) -> OverdueCount:
        """Count all and overdue entries of `leases` or `ready`, with the oldest overdue time."""
        key = self._keys.everywhere(part)
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.zcard(key)
            pipe.zcount(key, "-inf", now_ms)
            pipe.zrange(key, 0, 0, withscores=True)
            entries, past, first = pipe.execute()
        return OverdueCount(int(entries), int(past), float(first[0][1]) if past and first else None)

    def sizes(self, parts: Sequence[str]) -> dict[str, int]:
        """Count the entries of each of these sorted sets."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for part in parts:
                pipe.zcard(self._keys.everywhere(part))
            return dict(zip(parts, map(int, pipe.execute()), strict=True))

    def total_usage(self) -> dict[str, int]:
        """Read the total usage of all sessions, by counter."""
        with self._away():
            found = self._redis.hgetall(self._keys.everywhere("used"))
        return {name: int(number) for name, number in cast("dict[str, str]", found).items()}

    def newest_refs(self, status: str, limit: int) -> list[SessionRef]:
        """Read references to at most `limit` sessions with a status, newest first."""
        with self._away():
            found = self._redis.zrange(self._keys.status(status), 0, limit - 1, desc=True)
            sessions = cast("list[str]", found)
            roots = self._redis.mget([self._keys.id(s) for s in sessions]) if sessions else []
        pairs = zip(sessions, cast("list[str | None]", roots), strict=True)
        return [SessionRef(session, root) for session, root in pairs if root]

    def parked(self, refs: Sequence[SessionRef], limit: int) -> dict[SessionRef, list[str]]:
        """Read the addresses of the first parked (waiting) steps of each session."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref in refs:
                pipe.zrange(self._keys.part(ref, "parked"), 0, limit - 1)
            found = cast("list[list[str]]", pipe.execute())
        return dict(zip(refs, found, strict=True))

    def fields(self, refs: Sequence[SessionRef], fields: Sequence[str]) -> list[list[str | None]]:
        """Read these fields of each session's hash, None for a missing one, in the given order."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref in refs:
                pipe.hmget(self._keys.part(ref, "session"), list(fields))
            nothing: list[str | None] = [None] * len(fields)
            return [
                values or nothing for values in readable_replies(pipe.execute(raise_on_error=False))
            ]

    def last_entries(self, refs: Sequence[SessionRef], limit: int) -> list[str]:
        """Read the last `limit` entries of each session's ledger (JSON), as one list."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for ref in refs:
                pipe.lrange(self._keys.part(ref, "ledger"), -limit, -1)
            return [
                line
                for lines in readable_replies(pipe.execute(raise_on_error=False))
                for line in lines or ()
            ]


class StatisticsReads(StorePart):
    """Reads whole days, each as it was at one moment."""

    def days(self, days: Iterable[int]) -> dict[int, dict[str, str]]:
        """Read the counters of statistics of these days, by day (number of days since 1970)."""
        wanted = list(days)
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for day in wanted:
                pipe.hgetall(self._keys.named("stats", str(day)))
            return dict(zip(wanted, cast("list[dict[str, str]]", pipe.execute()), strict=True))


class Asked(NamedTuple):
    """Definitions that workers of a place report on."""

    definitions: Definitions
    place: str
    #: When they were last asked for, by the clock of Redis.
    asked_ms: int


class DefinitionStore(StorePart):
    """Reads and writes questions about definitions, and the reports of workers."""

    def ask(self, definitions: Definitions, *, place: str, now_ms: int) -> dict[str, str]:
        """Ask a place's workers to report on definitions; returns reports so far, by worker."""
        text = json.dumps({"text": definitions.text, "place": place, "asked_ms": now_ms})
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hset(self._keys.everywhere("asked"), definitions.mark, text)
            pipe.hgetall(self._keys.named("defined", definitions.mark))
            return cast("dict[str, str]", pipe.execute()[1])

    def reports(self, mark: str) -> dict[str, str]:
        """Read the stored reports on the definitions with this digest, by worker."""
        with self._away():
            found = self._redis.hgetall(self._keys.named("defined", mark))
        return cast("dict[str, str]", found)

    def asked(self) -> dict[str, Asked]:
        """Read the definitions that workers are asked to report on, by digest."""
        with self._away():
            found = cast("dict[str, str]", self._redis.hgetall(self._keys.everywhere("asked")))
        return {mark: _asked(text) for mark, text in found.items()}

    def forget(self, mark: str) -> None:
        """Stop asking workers about the definitions with this digest."""
        with self._away():
            self._redis.hdel(self._keys.everywhere("asked"), mark)

    def report(self, mark: str, worker: str, text: str) -> None:
        """Store a worker's report on definitions, replacing its earlier one; it expires."""
        key = self._keys.named("defined", mark)
        with self._away(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(key, worker, text)
            pipe.expire(key, ASKED_S)
            pipe.execute()


def _asked(text: str) -> Asked:
    fields = json.loads(text)
    return Asked(parse_definitions(fields["text"]), fields["place"], fields["asked_ms"])


class KeyScanner(StorePart):
    """Reads with SCAN and its variants: at most one batch in memory, without blocking Redis."""

    def scan(self, cursor: int, count: int) -> tuple[int, list[str]]:
        """Return a batch of the store's keys and the next cursor, which is 0 at the end."""
        with self._away():
            found = self._redis.scan(cursor, match=self._keys.everywhere("*"), count=count)
        after, keys = cast("tuple[int, list[str]]", found)
        return int(after), keys

    def batches(self, key: str, kind: Kind, size: int) -> Iterator[list[str]]:
        """Yield the members of a set or the fields of a hash in batches; may miss changes."""
        names = self._names(key, kind, size)
        while True:
            with self._away():
                batch = list(islice(names, size))
            if not batch:
                return
            yield batch

    def _names(self, key: str, kind: Kind, size: int) -> Iterator[str]:
        match kind:
            case "zset":
                rows = cast("Iterator[tuple[str, float]]", self._redis.zscan_iter(key, count=size))
                return (name for name, _ in rows)
            case "hash":
                fields = self._redis.hscan_iter(key, count=size)
                return (name for name, _ in cast("Iterator[tuple[str, str]]", fields))
            case "set":
                return cast("Iterator[str]", self._redis.sscan_iter(key, count=size))
