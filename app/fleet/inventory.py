"""Parses the inventories that workers publish, and checks their expiry (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, Protocol, TypeVar

from pydantic import JsonValue

from app.domain.clock import iso
from leadhand.models.views.fleet import WorkerView

#: Validity of an inventory that does not state its own.
USUAL_MS = 45_000
#: How long an expired inventory is kept, for the diagnosis of missing workers.
KEPT_MS = 24 * 3600 * 1000


class Inventory(NamedTuple):
    """The last inventory of a worker, with its expiry."""

    worker: WorkerView
    seen_ms: int
    #: After this time the worker counts as gone.
    until_ms: int


@lru_cache(maxsize=256)
def inventory_of(name: str, text: str) -> Inventory:
    """Parses a worker's stored inventory (JSON) into its view, publication time and expiry time.

    >>> inventory_of("one", '{"place": "here", "seen_ms": 1000}').until_ms
    46000
    """
    fields = json.loads(text)
    seen_ms = int(fields.pop("seen_ms", 0))
    until_ms = int(fields.pop("until_ms", seen_ms + USUAL_MS))
    # A newer worker may send fields that this version does not know.
    worker = WorkerView.model_validate({**fields, "name": name, "seen_at": iso(seen_ms)})
    return Inventory(worker, seen_ms, until_ms)


def text_of(fields: Mapping[str, JsonValue], *, now_ms: int, holds_ms: int) -> str:
    """Serializes a worker's inventory as JSON, with the current time and its expiry time."""
    text = json.dumps(
        {**fields, "seen_ms": now_ms, "until_ms": now_ms + holds_ms}, ensure_ascii=False
    )
    return text.encode("utf-8", "replace").decode()  # a path that is not UTF-8 cannot be sent


def live_workers(texts: Mapping[str, str], now_ms: int) -> list[WorkerView]:
    """Returns the fleet's workers whose inventory has not expired, parsed and sorted by name."""
    return [one for one in all_live_workers(texts, now_ms) if one.session is None]


def all_live_workers(texts: Mapping[str, str], now_ms: int) -> list[WorkerView]:
    """Returns the live workers of the fleet and those of local steps, which serve one session."""
    found = (inventory_of(name, text) for name, text in sorted(texts.items()))
    return [one.worker for one in found if now_ms <= one.until_ms]


def consumed_queues(worker: WorkerView) -> list[str]:
    """Returns the queues that a worker says it consumes; if it does not say, all of its queues.

    >>> consumed_queues(WorkerView(name="one", place="here", queues=["a", "b"]))
    ['a', 'b']
    >>> consumed_queues(WorkerView(name="one", place="here", queues=["a", "b"], consumes=["b"]))
    ['b']
    """
    return worker.queues if worker.consumes is None else worker.consumes


def all_queues(texts: Mapping[str, str]) -> set[str]:
    """Returns the queues of all workers, expired ones included."""
    found = (inventory_of(name, text) for name, text in texts.items())
    return {queue for one in found for queue in one.worker.queues}


def long_expired(texts: Mapping[str, str], now_ms: int) -> list[str]:
    """Returns the names of workers whose inventory expired so long ago that it can be deleted."""
    return [n for n, t in texts.items() if now_ms - inventory_of(n, t).until_ms > KEPT_MS]


class _Reported(Protocol):
    @property
    def why_not(self) -> str | None:
        """Why it cannot be used; None if it can."""


T = TypeVar("T", bound=_Reported)


class Availability(NamedTuple, Generic[T]):
    """An agent or tool: where it can be used, and why not elsewhere."""

    #: The report of a place that can use it, if there is one.
    first: T
    at: list[str]
    why_not: Mapping[str, str]


def summarize(found: Sequence[tuple[str, T]]) -> Availability[T]:
    """Merges reports on one agent or tool: the report, where it is usable, and why not elsewhere.

    Needs at least one report.
    """
    at = sorted({place for place, one in found if one.why_not is None})
    first = next((one for _, one in found if one.why_not is None), found[0][1])
    why_not = {place: one.why_not for place, one in found if place not in at}
    return Availability(
        first, at, {place: why for place, why in sorted(why_not.items()) if why is not None}
    )
