"""Limits of how many attempts with a key run at once, and of how many begin in a minute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from app.errors import LimitChanged, LimitUnknown, ProgramNewer, SessionUnknown
from app.keys import SessionRef, lock_name, name_of_lock
from app.records import StepRecord
from app.store import Store
from app.transitions import Transitions
from app.views import Limit

#: How many are called at once where a limit is taken away.
CALLED = 200
#: How many ready steps are looked at where a pace changes.
LOOKED_AT = 5000

#: What a caller saw of a limit: one of these, or `any`, that there was one.
SeenLimit = Sequence[Limit] | Literal["any"]


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
        self._call(key, concurrency)
        return limit

    def _set_limit(self, key: str, text: str | None, seen: SeenLimit | None) -> bool:
        texts = seen if seen is None or seen == "any" else [_limit_text(one) for one in seen]
        answer = self._store.limit(lock_name(key), text, seen=texts)
        if answer.word == "changed":
            raise LimitChanged(key)
        if answer.paced:
            self._look_at_paced()
        return answer.word == "replaced"

    def _look_at_paced(self) -> None:
        """Let those who wait for a slot look again; the sweep comes to the rest in some minutes."""
        for stood in self._store.looks().next("ready", LOOKED_AT):
            if StepRecord.model_validate_json(stood.record).slot is not None:
                with suppress(SessionUnknown, ProgramNewer):
                    self._transitions.rehint(stood.ref, stood.address, depth=0)

    def _call(self, key: str, room: int | None) -> None:
        """Let those who wait for a key try again: what keeps them has changed."""
        for line in self._store.fleet().tickets(lock_name(key))[: room or CALLED]:
            session, root, address = line.partition("<")[2].split("|", 2)
            with suppress(SessionUnknown):
                ref = SessionRef(session, root)
                self._transitions.rehint(ref, address, depth=0, called=True)

    def unlimit(self, key: str, *, seen: SeenLimit | None = None) -> bool:
        """Take a limit away; whether there was one. Raises LimitChanged."""
        there_was = self._set_limit(key, None, seen)
        self._call(key, None)
        return there_was

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
