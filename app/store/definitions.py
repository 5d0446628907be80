"""Stores which definitions of folders workers are asked about, and what they report."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

from redis import Redis

from app.domain.environment.definitions import Definitions, parse_definitions
from app.store.keys import Keys

#: How long workers report on definitions after somebody asked.
ASKED_S = 900


class Asked(NamedTuple):
    """Definitions that workers of a place report on."""

    definitions: Definitions
    place: str
    #: When they were last asked for, by the clock of Redis.
    asked_ms: int


class DefinitionStore:
    """Reads and writes questions about definitions, and the reports of workers."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

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
