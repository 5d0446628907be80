"""Concurrency and rate limits by key: attempts at once, and attempts per minute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from app.domain.ids import SessionRef, lock_name, name_of_lock
from app.operations.store_guard import StoreGuard
from app.operations.transitions import Transitions
from app.store.store import Store
from leadhand.errors import LimitChanged, LimitUnknown
from leadhand.models.views.fleet import Limit

#: What a caller read of a limit: one of these values, or `any` for an existing limit.
SeenLimit = Sequence[Limit] | Literal["any"]

_NOBODY = SessionRef("", "")


class Limits:
    """Sets and reads the limits of the fleet; a change wakes the steps that wait for one."""

    def __init__(self, store: Store, transitions: Transitions, guard: StoreGuard) -> None:
        self._guard = guard
        self._store = store
        self._transitions = transitions

    def set_limit(
        self,
        key: str,
        *,
        concurrency: int | None = None,
        per_minute: float | None = None,
        seen: SeenLimit | None = None,
    ) -> Limit:
        """Store a limit for attempts with a key: how many run at once, or start per minute.

        Raises LimitChanged if the limit differs from `seen`, and StoreUnknown.
        """
        limit = Limit(key=key, concurrency=concurrency, per_minute=per_minute)
        self._set_limit(key, _limit_text(limit), seen)
        return limit

    def _set_limit(self, key: str, text: str | None, seen: SeenLimit | None) -> bool:
        texts = seen if seen is None or seen == "any" else [_limit_text(one) for one in seen]
        answer = self._store.limit(lock_name(key), text, seen=texts)
        while answer.word == "other_store":
            self._guard.check()  # raises, unless the store was accepted meanwhile
            answer = self._store.limit(lock_name(key), text, seen=texts)
        if answer.word == "changed":
            raise LimitChanged(key)
        self._transitions.after(_NOBODY, answer)
        return answer.word == "replaced"

    def remove_limit(self, key: str, *, seen: SeenLimit | None = None) -> bool:
        """Remove a limit; returns whether it existed. Raises LimitChanged."""
        return self._set_limit(key, None, seen)

    def limit_of(self, key: str) -> Limit:
        """Return the limit of one key. Raises LimitUnknown."""
        text = self._store.fleet().limits().get(lock_name(key))
        if text is None:
            raise LimitUnknown(key)
        return _limit(key, text)

    def all_limits(self) -> list[Limit]:
        """Return all limits, sorted by key."""
        found = sorted(self._store.fleet().limits().items())
        return [_limit(name_of_lock(lock), text) for lock, text in found]


def _limit(key: str, text: str) -> Limit:
    """Parse a stored limit; another version may have written it."""
    return Limit.model_validate({**json.loads(text), "key": key})


def _limit_text(limit: Limit) -> str:
    """Serialize a limit for the store."""
    return limit.model_dump_json(exclude={"key"}, exclude_none=True)
