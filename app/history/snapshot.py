"""A lazy, memoised snapshot of one session's records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache

from pydantic import JsonValue

from app.domain.ids import SessionRef
from app.domain.outcomes import Thread
from app.domain.records import StepRecord, TurnRecord
from app.store.store import Store


class Snapshot:
    """Reads records on demand, each once. Callers check that the session has not changed since."""

    def __init__(self, store: Store, ref: SessionRef) -> None:
        self._store = store
        self._ref = ref
        self.run = cache(self._run)
        self.step = cache(self._step)
        self.turn = cache(self._turn)
        self.outcome = cache(self._outcome)
        self.thread = cache(self._thread)

    def steps(self, addresses: Sequence[str]) -> Mapping[str, StepRecord]:
        """Return the records of the steps at these addresses, without those that have none."""
        return self._store.steps(self._ref, addresses)

    def _run(self, place: str) -> int:
        return int(self._store.values(self._ref, "runs", [place]).get(place, 1))

    def _step(self, address: str) -> StepRecord | None:
        return self._store.steps(self._ref, [address]).get(address)

    def _turn(self, id_: str) -> TurnRecord | None:
        return self._store.turns(self._ref, [id_]).get(id_)

    def _outcome(self, address: str) -> Mapping[str, JsonValue]:
        kept = self._store.values(self._ref, "out", [address]).get(address)
        return json.loads(kept) if kept is not None else {}

    def _thread(self, address: str) -> Thread | None:
        thread = self._outcome(address).get("thread")
        return Thread.model_validate(thread) if thread else None
