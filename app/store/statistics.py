"""Reads the counters of statistics: a hash per day, see the Lua module `statistics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import cast

from redis import Redis

from app.store.keys import Keys


class StatisticsReads:
    """Reads whole days, each as it was at one moment."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def days(self, days: Iterable[int]) -> dict[int, dict[str, str]]:
        """Read the counters of statistics of these days, by day (number of days since 1970)."""
        wanted = list(days)
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for day in wanted:
                pipe.hgetall(self._keys.named("stats", str(day)))
            return dict(zip(wanted, cast("list[dict[str, str]]", pipe.execute()), strict=True))
