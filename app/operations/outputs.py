"""Publishes what running bodies write, for those who watch; no outcome depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.domain.ids import SessionRef
from app.domain.records import Reply
from app.store.store import Store

#: Attempts of one session whose output is kept: 32 of 64 KiB are 2 MiB.
ATTEMPTS = 32
#: Bytes of one attempt's output that are kept.
RING_BYTES = 64 * 1024
#: Where there is no room for another attempt, one that has been silent for so long gives way.
QUIET_MS = 10_000
#: How long an output is kept after its last part.
KEPT_S = 24 * 3600


class Part(Protocol):
    """One part of an attempt's output, redacted."""

    @property
    def seq(self) -> int:
        """Return the number of the part among all parts of its attempt."""

    @property
    def stream(self) -> str:
        """Return the name of the stream from which the part was read."""

    @property
    def text(self) -> str:
        """Return the redacted text of the part."""

    @property
    def dropped(self) -> int:
        """Return the number of bytes that were dropped just before the part."""


class Outputs:
    """Appends to the rings, through a store of its own: output may never delay a beat."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(
        self,
        ref: SessionRef,
        address: str,
        fence: int,
        parts: Sequence[Part],
        *,
        oldest: str | None = None,
    ) -> Reply:
        """Append live output of an attempt; the reply says kept, full, superseded or unknown.

        Parts before the id `oldest` are removed. Raises StoreAway.
        """
        return self._store.run(
            "output",
            ref,
            "",
            {
                "address": address,
                "fence": fence,
                "parts": [
                    {"seq": p.seq, "stream": p.stream, "text": p.text, "dropped": p.dropped}
                    for p in parts
                ],
                "oldest": oldest,
                "attempts": ATTEMPTS,
                "quiet_ms": QUIET_MS,
                "ttl_s": KEPT_S,
            },
        )
