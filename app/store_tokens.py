"""API tokens in Redis: what is kept of each, when it was used, and what its sessions use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import cast

from redis import Redis

from app.keys import Keys

#: How long an Idempotency-Key is known.
KEY_S = 7 * 24 * 3600


class TokenShelf:
    """One hash holds all tokens: whoever revokes one leaves nothing of it behind."""

    def __init__(
        self, redis: Redis, keys: Keys, away: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away

    def put(self, token: str, text: str) -> None:
        with self._away():
            self._redis.hset(self._keys.everywhere("tokens"), token, text)

    def get(self, token: str) -> str | None:
        with self._away():
            return cast("str | None", self._redis.hget(self._keys.everywhere("tokens"), token))

    def all(self) -> Mapping[str, str]:
        with self._away():
            found = self._redis.hgetall(self._keys.everywhere("tokens"))
        return cast("dict[str, str]", found)

    def drop(self, token: str) -> bool:
        """Forget a token; whether there was one."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hdel(self._keys.everywhere("tokens"), token)
            pipe.hdel(self._keys.everywhere("token-uses"), token)
            dropped, _ = pipe.execute()
        return bool(dropped)

    def claim(self, mark: str, text: str) -> str:
        """Note what a key stands for, unless that is noted already; what stands now."""
        key = self._keys.token_key(mark)
        with self._away():
            self._redis.set(key, text, nx=True, ex=KEY_S)
            return cast("str | None", self._redis.get(key)) or text

    def claimed(self, mark: str) -> str | None:
        with self._away():
            return cast("str | None", self._redis.get(self._keys.token_key(mark)))

    def unclaim(self, mark: str) -> None:
        with self._away():
            self._redis.delete(self._keys.token_key(mark))

    def used(self, token: str, at_ms: int) -> None:
        with self._away():
            self._redis.hset(self._keys.everywhere("token-uses"), token, str(at_ms))

    def uses(self) -> Mapping[str, int]:
        with self._away():
            found = self._redis.hgetall(self._keys.everywhere("token-uses"))
        return {token: int(at) for token, at in cast("dict[str, str]", found).items()}

    def spent(self, token: str, day: int) -> Mapping[str, int]:
        """Sessions that have not ended; steps and bytes of this day since the epoch."""
        with self._away():
            live = self._redis.scard(self._keys.owned(token))
            found = cast("dict[str, str]", self._redis.hgetall(self._keys.spent(token, day)))
        return {"sessions": int(live)} | {name: int(count) for name, count in found.items()}
