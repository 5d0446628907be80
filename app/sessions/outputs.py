"""Publishes and reads what running bodies write: the stored parts, and new ones as they arrive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from app.context import Context
from app.core.addresses import SessionRef, iso
from app.core.records import Reply
from app.sessions.wait_reasons import Trouble
from app.store.artifacts import BEGINNING, StoredPart
from app.store.store import Store
from leadhand.models.text import plain
from leadhand.models.views.step import OutputPart, OutputView

#: Attempts of one session whose output is kept: 32 of 64 KiB are 2 MiB.
ATTEMPTS = 32
#: Bytes of one attempt's output that are kept.
RING_BYTES = 64 * 1024
#: Where there is no room for another attempt, one that has been silent for so long gives way.
QUIET_MS = 10_000
#: How long an output is kept after its last part.
KEPT_S = 24 * 3600
#: Attempts that a view shows.
SHOWN = 32
#: Parts of one attempt that are read at a time.
READ = 500
#: Parts of one attempt that are searched for the last trouble of its agent.
RECENT = 100
#: Maximum characters of a trouble in a view.
TROUBLE = 200
#: Written by the adapters of agents for what does not end the agent.
_TROUBLE = re.compile(r"^! ((?:retry|rate limit|warning|error): .+)$", re.MULTILINE)


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


def list_outputs(
    engine: Context, session: str, *, step: str | None, limit: int
) -> list[OutputView]:
    """Returns the live output of the latest attempts, of one step or of all, newest first."""
    ref = engine.registry.ref(session)
    kept = engine.store.outputs().attempts(ref)
    newest = [name for name, _ in reversed(kept) if step is None or _split(name)[0] == step]
    shown = newest[: min(limit, SHOWN)]
    parts = engine.store.outputs().parts(ref, dict.fromkeys(shown, BEGINNING))
    records = engine.store.steps(ref, sorted({_split(name)[0] for name in shown}))
    views = []
    for name in shown:
        if name not in parts:  # its time is over
            continue
        address, fence = _split(name)
        record = records.get(address)
        at_work = record is not None and record.state == "running" and record.fence == fence
        views.append(
            OutputView(
                address=address,
                fence=fence,
                running=at_work,
                last_at=iso(parts[name][-1].at_ms),
                parts=[output_part(part) for part in parts[name]],
            )
        )
    return views


def follow_outputs(engine: Context, session: str) -> OutputCursor:
    """Returns a reader of a session's live output: first all that is stored, then additions."""
    return OutputCursor(engine.store, engine.registry.ref(session))


class OutputCursor:
    """The position of one reader in the output of a session."""

    def __init__(self, store: Store, ref: SessionRef) -> None:
        self._store = store
        self._ref = ref
        self._last: dict[str, str] = {}
        #: When an attempt had written last as all of its parts had been read.
        self._read_to: dict[str, int] = {}

    def read(self) -> Iterator[tuple[str, int, StoredPart]]:
        """Yields live output added since the last call as (step, attempt's fence, part) by time."""
        shelf = self._store.outputs()
        changed = [(n, at) for n, at in shelf.attempts(self._ref) if self._read_to.get(n) != at]
        after = {name: self._last.get(name, BEGINNING) for name, _ in changed}
        found = shelf.parts(self._ref, after, limit=READ)
        for name, at_ms in changed:
            if name in found:
                self._last[name] = found[name][-1].id
            if len(found.get(name, ())) < READ:
                self._read_to[name] = at_ms
        parts = [(*_split(name), part) for name, ones in found.items() for part in ones]
        yield from sorted(parts, key=lambda one: (one[2].at_ms, one[0], one[1], one[2].seq))


def newest_troubles(store: Store, ref: SessionRef, attempts: Sequence[str]) -> dict[str, Trouble]:
    """Returns the last problem in each attempt's recent agent output, by ``address#fence``."""
    found: dict[str, Trouble] = {}
    for name, parts in store.outputs().newest_parts(ref, attempts, limit=RECENT).items():
        for part in parts:
            lines = _TROUBLE.findall(part.text) if part.stream == "agent" else []
            if lines:
                found[name] = Trouble(plain(lines[-1], most=TROUBLE), part.at_ms)
                break
    return found


def output_part(part: StoredPart) -> OutputPart:
    """Builds the API's view of a stored part of live output."""
    return OutputPart.model_validate(
        {
            "seq": part.seq,
            "stream": part.stream,
            "text": part.text,
            "dropped": part.dropped,
            "at": iso(part.at_ms),
        }
    )


def _split(name: str) -> tuple[str, int]:
    """Address and fence; an item's address has a `#` of its own.

    >>> _split("fetch~1#17#2")
    ('fetch~1#17', 2)
    """
    address, _, fence = name.rpartition("#")
    return address, int(fence)
