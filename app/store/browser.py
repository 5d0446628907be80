"""Stores what the dashboard keeps: sign-in links, browser sessions, and saved views."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

from redis import Redis

from app.store.keys import Keys

#: How long saved views that no visitor reads are kept, and how many one visitor may have.
VIEWS_S, VIEWS = 400 * 24 * 3600, 50


class BrowserStore:
    """Reads and writes records with a time to live; Redis deletes those that are over."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def put_link(self, mark: str, text: str, *, ttl_s: int) -> None:
        """Store a sign-in link for the dashboard, which expires after `ttl_s`."""
        with self._away():
            self._redis.set(self._keys.named("browser-link", mark), text, ex=ttl_s)

    def take_link(self, mark: str) -> str | None:
        """Read and delete a sign-in link, so that only one caller gets it; None if missing."""
        with self._away():
            return cast("str | None", self._redis.getdel(self._keys.named("browser-link", mark)))

    def put(self, mark: str, text: str, *, ttl_s: int) -> None:
        """Store a browser session (a sign-in to the dashboard), which expires after `ttl_s`."""
        with self._away():
            self._redis.set(self._keys.named("browser", mark), text, ex=ttl_s)

    def get(self, mark: str, *, ttl_s: int) -> str | None:
        """Read a browser session and extend its time to live; None if it has expired."""
        with self._away():
            found = self._redis.getex(self._keys.named("browser", mark), ex=ttl_s)
        return cast("str | None", found)

    def delete(self, mark: str) -> None:
        """Delete a browser session, so that the browser is signed out of the dashboard."""
        with self._away():
            self._redis.delete(self._keys.named("browser", mark))

    def views(self, owner: str) -> dict[str, str]:
        """Read a visitor's saved views, query by name, sorted; extends their time to live."""
        key = self._keys.named("views", owner)
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(key)
            pipe.expire(key, VIEWS_S)
            found = cast("dict[str, str]", pipe.execute()[0])
        return dict(sorted(found.items()))

    def put_view(self, owner: str, name: str, address: str) -> bool:
        """Save or replace a visitor's view by its name; False if too many others are saved."""
        key = self._keys.named("views", owner)
        with self._away():
            if self._redis.hlen(key) >= VIEWS and not self._redis.hexists(key, name):
                return False
            self._redis.hset(key, name, address)
        return True

    def drop_view(self, owner: str, name: str) -> None:
        """Delete the saved view of this name of a visitor, if there is one."""
        with self._away():
            self._redis.hdel(self._keys.named("views", owner), name)
