"""Limits of how many attempts with a key run at once, and of how many begin in a minute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from app.errors import LimitChanged, LimitUnknown
from app.keys import SessionRef, lock_name, name_of_lock
from app.store import Store
from app.transitions import Transitions
from app.views import Limit

#: What a caller saw of a limit: one of these, or `any`, that there was one.
SeenLimit = Sequence[Limit] | Literal["any"]

_NOBODY = SessionRef("", "")


class Limiting:
    """The limits of the whole fleet; whoever waits for one looks again when it changes."""

    def __init__(self, store: Store, transitions: Transitions) -> None:
        self._store = store
        self._transitions = transitions

    def limit(
        self,
        key: str,
        *,
        concurrency: int | None = None,
        per_minute: float | None = None,
        seen: SeenLimit | None = None,
    ) -> Limit:
        """Let at most so many attempts with this key run, or so many begin in a minute.

        Raises LimitChanged where it is not as it was seen.
        """
        limit = Limit(key=key, concurrency=concurrency, per_minute=per_minute)
        self._set_limit(key, _limit_text(limit), seen)
        return limit

    def _set_limit(self, key: str, text: str | None, seen: SeenLimit | None) -> bool:
        texts = seen if seen is None or seen == "any" else [_limit_text(one) for one in seen]
        answer = self._store.limit(lock_name(key), text, seen=texts)
        if answer.word == "changed":
            raise LimitChanged(key)
        self._transitions.after(_NOBODY, answer)
        return answer.word == "replaced"

    def unlimit(self, key: str, *, seen: SeenLimit | None = None) -> bool:
        """Take a limit away; whether there was one. Raises LimitChanged."""
        return self._set_limit(key, None, seen)

    def limit_of(self, key: str) -> Limit:
        """The limit of one key. Raises LimitUnknown."""
        text = self._store.fleet().limits().get(lock_name(key))
        if text is None:
            raise LimitUnknown(key)
        return Limit(key=key, **json.loads(text))

    def limits(self) -> list[Limit]:
        """All limits, by key."""
        found = sorted(self._store.fleet().limits().items())
        return [Limit(key=name_of_lock(lock), **json.loads(text)) for lock, text in found]


def _limit_text(limit: Limit) -> str:
    """A limit as the store has it."""
    return limit.model_dump_json(exclude={"key"}, exclude_none=True)
