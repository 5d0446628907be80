"""Fleet-wide records in Redis: inventories, locks and their holders, limits, secrets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, cast

from redis import Redis

from app.domain.folders import folders_above, is_folder, prefix_below
from app.store.keys import Keys

#: Maximum lines that are read per overlapping folder.
SHOWN = 20


class FleetRecords:
    """Reads and writes the fleet-wide records."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

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
