"""What the fleet shares in Redis: inventories of the workers, locks and their holders, limits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

from redis import Redis

from app.keys import Keys


class FleetShelf:
    """Nothing of it belongs to one session."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def tell_of_worker(self, name: str, inventory: str) -> None:
        """Publish a worker's inventory; it is read as long as it is young."""
        with self._away():
            self._redis.hset(self._keys.everywhere("workers"), name, inventory)

    def forget_worker(self, name: str) -> None:
        """Take a worker's inventory back."""
        with self._away():
            self._redis.hdel(self._keys.everywhere("workers"), name)

    def workers(self) -> dict[str, str]:
        """All inventories, young or old."""
        with self._away():
            return cast("dict[str, str]", self._redis.hgetall(self._keys.everywhere("workers")))

    def holders(self, lock: str) -> list[str]:
        """Who holds a lock, each as ``session|root|address`` of an attempt or a turn."""
        return self._below("holds", lock)

    def tickets(self, lock: str) -> list[str]:
        """Who waits for a lock, first come first, each as ``order<session|root|address``."""
        return self._below("tickets", lock)

    def slot(self, lock: str) -> float | None:
        """When the next attempt with a key may begin, as its limit of rate says (ms)."""
        with self._away():
            slot = cast("str | None", self._redis.hget(self._keys.everywhere("rates"), lock))
        return None if slot is None else float(slot)

    def limits(self) -> dict[str, str]:
        """All limits that are set, by key (JSON)."""
        with self._away():
            return cast("dict[str, str]", self._redis.hgetall(self._keys.everywhere("limits")))

    def owe(self, session: str, why: str) -> None:
        """Note why a session's export could not be written; it goes with the session."""
        with self._away():
            self._redis.hset(self._keys.everywhere("owed"), session, why)

    def owed(self) -> dict[str, str]:
        """The sessions that stay because their export could not be written, and why."""
        with self._away():
            return cast("dict[str, str]", self._redis.hgetall(self._keys.everywhere("owed")))

    def _below(self, part: str, lock: str) -> list[str]:
        key, low, high = self._keys.everywhere(part), f"[{lock}<", f"({lock}="
        with self._away():
            lines = cast("list[str]", self._redis.zrangebylex(key, low, high))
        return [line[len(lock) + 1 :] for line in lines]
