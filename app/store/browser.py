"""Stores sign-in links and browser sessions of the dashboard, by the hash of their secret."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

from redis import Redis

from app.store.keys import Keys


class BrowserStore:
    """Reads and writes records with a time to live; Redis deletes those that are over."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def put_link(self, mark: str, text: str, *, ttl_s: int) -> None:
        """Store a sign-in link."""
        with self._away():
            self._redis.set(self._keys.named("browser-link", mark), text, ex=ttl_s)

    def take_link(self, mark: str) -> str | None:
        """Read and delete a sign-in link, so that only one caller gets it."""
        with self._away():
            return cast("str | None", self._redis.getdel(self._keys.named("browser-link", mark)))

    def put(self, mark: str, text: str, *, ttl_s: int) -> None:
        """Store a browser session."""
        with self._away():
            self._redis.set(self._keys.named("browser", mark), text, ex=ttl_s)

    def get(self, mark: str, *, ttl_s: int) -> str | None:
        """Read a browser session, and extend its time."""
        with self._away():
            found = self._redis.getex(self._keys.named("browser", mark), ex=ttl_s)
        return cast("str | None", found)

    def delete(self, mark: str) -> None:
        """Delete a browser session."""
        with self._away():
            self._redis.delete(self._keys.named("browser", mark))
