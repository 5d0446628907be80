"""Removes webhooks and API tokens from imported data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from redis import Redis
from redis.exceptions import ResponseError

#: Keys by the end of their names, under any prefix: pending deliveries, and API tokens.
_REMOVED = ("*:hooks", "*:tokens", "*:token-uses", "*:token-key:*")
#: Webhook fields of a session: receiver, events, and whether it was notified.
_FIELDS = ("webhook", "rings", "rung")
_SCAN = 1000
#: Outbox messages that resume a session; after an import only its user may.
_RESUMES = "resume|*"


class ForeignData:
    """Works on all keys of a database, because the indexes of imported data may be wrong."""

    def __init__(self, redis: Redis, away: Callable[[], AbstractContextManager[None]]) -> None:
        self._redis = redis
        self._away = away

    def remove_contacts(self) -> None:
        """Delete webhooks, deliveries, tokens and Redis functions from an imported database.

        May be killed at any point and repeated.
        """
        with self._away():
            with suppress(ResponseError):  # Redis 6 has no functions
                self._redis.function_flush()
            for pattern in _REMOVED:
                for key in self._redis.scan_iter(pattern, count=_SCAN):
                    self._redis.unlink(key)
            for key in self._redis.scan_iter("*:session", count=_SCAN, _type="hash"):
                self._redis.hdel(key, *_FIELDS)
            for key in self._redis.scan_iter("*:errands", count=_SCAN, _type="zset"):
                for message, _ in self._redis.zscan_iter(key, match=_RESUMES, count=_SCAN):
                    self._redis.zrem(key, message)
