"""Pure: what worker hosts tell of themselves, and until when each is believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.pictures import iso
from app.views import WorkerView

#: How long the word of a worker holds that did not say so itself.
USUAL_MS = 45_000
#: How long one that holds no more is kept, for those who look for a worker that they miss.
KEPT_MS = 24 * 3600 * 1000


class Inventory(NamedTuple):
    """A worker host, by its own word."""

    worker: WorkerView
    seen_ms: int
    #: After this time nobody is there as far as others can tell.
    until_ms: int


def inventory_of(name: str, text: str) -> Inventory:
    """What a worker told last.

    >>> inventory_of("one", '{"place": "here", "seen_ms": 1000}').until_ms
    46000
    """
    told = json.loads(text)
    seen_ms = int(told.pop("seen_ms", 0))
    until_ms = int(told.pop("until_ms", seen_ms + USUAL_MS))
    return Inventory(WorkerView(name=name, seen_at=iso(seen_ms), **told), seen_ms, until_ms)


def text_of(told: Mapping[str, JsonValue], *, now_ms: int, holds_ms: int) -> str:
    """A worker's word, and until when it holds."""
    return json.dumps({**told, "seen_ms": now_ms, "until_ms": now_ms + holds_ms})


def believed(texts: Mapping[str, str], now_ms: int) -> list[WorkerView]:
    """The workers that are there, by name."""
    found = (inventory_of(name, text) for name, text in sorted(texts.items()))
    return [told.worker for told in found if now_ms <= told.until_ms]


def taken_from(texts: Mapping[str, str]) -> set[str]:
    """The queues of all workers, also of those that are gone."""
    found = (inventory_of(name, text) for name, text in texts.items())
    return {queue for told in found for queue in told.worker.queues}


def forgotten(texts: Mapping[str, str], now_ms: int) -> list[str]:
    """The names of those that nobody looks for any more."""
    return [n for n, t in texts.items() if now_ms - inventory_of(n, t).until_ms > KEPT_MS]
