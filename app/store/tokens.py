"""Stores API tokens in Redis, and what the dashboard keeps of browsers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from app.store.errors import StorePart

#: How long an Idempotency-Key is stored.
KEY_S = 7 * 24 * 3600
#: How long saved views that no visitor reads are kept, and how many one visitor may have.
VIEWS_S, VIEWS = 400 * 24 * 3600, 50


class TokenStore(StorePart):
    """Reads and writes token records; they are in one hash, so that a deletion leaves nothing."""

    def put(self, token: str, text: str) -> None:
        """Store the record of an API token under its id, replacing any earlier one."""
        with self._away():
            self._redis.hset(self._keys.everywhere("tokens"), token, text)

    def get(self, token: str) -> str | None:
        """Read the record of an API token by its id; None if there is none."""
        with self._away():
            return cast("str | None", self._redis.hget(self._keys.everywhere("tokens"), token))

    def all(self) -> Mapping[str, str]:
        """Read the records of all API tokens, by token id."""
        with self._away():
            found = self._redis.hgetall(self._keys.everywhere("tokens"))
        return cast("dict[str, str]", found)

    def delete(self, token: str) -> bool:
        """Delete an API token and its time of last use; returns whether it existed."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hdel(self._keys.everywhere("tokens"), token)
            pipe.hdel(self._keys.everywhere("token-uses"), token)
            dropped, _ = pipe.execute()
        return bool(dropped)

    def claim(self, mark: str, text: str) -> str:
        """Store a text under an Idempotency-Key unless it has one; returns the stored text."""
        key = self._keys.token_key(mark)
        with self._away():
            self._redis.set(key, text, nx=True, ex=KEY_S)
            return cast("str | None", self._redis.get(key)) or text

    def find_claim(self, mark: str) -> str | None:
        """Read the text stored under the digest of an Idempotency-Key; None if there is none."""
        with self._away():
            return cast("str | None", self._redis.get(self._keys.token_key(mark)))

    def delete_claim(self, mark: str) -> None:
        """Delete the text that is stored under an Idempotency-Key."""
        with self._away():
            self._redis.delete(self._keys.token_key(mark))

    def record_use(self, token: str, at_ms: int) -> None:
        """Store the time (ms) at which an API token was used last."""
        with self._away():
            self._redis.hset(self._keys.everywhere("token-uses"), token, str(at_ms))

    def last_uses(self) -> Mapping[str, int]:
        """Read the time (ms) at which each API token was used last, by token id."""
        with self._away():
            found = self._redis.hgetall(self._keys.everywhere("token-uses"))
        return {token: int(at) for token, at in cast("dict[str, str]", found).items()}

    def usage(self, token: str, day: int) -> Mapping[str, int]:
        """Count the token's active sessions, and its steps and bytes on a day (since 1970)."""
        with self._away():
            live = self._redis.scard(self._keys.owned(token))
            found = cast("dict[str, str]", self._redis.hgetall(self._keys.spent(token, day)))
        return {"sessions": int(live)} | {name: int(count) for name, count in found.items()}


class BrowserStore(StorePart):
    """Reads and writes records with a time to live; Redis deletes those that are over."""

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
