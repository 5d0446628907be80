"""Copies the records of a session for a fork."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, cast

from redis import Redis

from app.core.addresses import SessionRef
from app.store.errors import Away, StorePart
from app.store.keys import Keys

#: Records of one batch.
BATCH = 500
#: Seconds after which the copies of a fork that was never completed are gone.
COPY_TTL_S = 3600
#: States of steps that have ended.
_ENDED = frozenset({"succeeded", "failed", "cancelled", "skipped"})
#: Fields of a step's record that belong to its attempts.
_OF_ATTEMPTS = ("nonce", "owner", "lease", "deadline", "heard")
_SUPERSEDED = {"code": "superseded", "text": "it had not ended when the session was forked"}


class Copied(NamedTuple):
    """What was copied: the number of records of each part, and what their steps had cost."""

    counts: dict[str, int]
    cost_micros: int


class Copies(StorePart):
    """Copies in batches. A copy expires unless its session is created."""

    def __init__(self, redis: Redis, keys: Keys, away: Away) -> None:
        super().__init__(redis, keys, away)
        self._cost_micros = 0

    def copy(self, source: SessionRef, target: SessionRef) -> Copied:
        """Copy the records of ended steps and loops to another session; returns their counts."""
        self._cost_micros = 0
        counts = {
            "steps": self._hash(source, target, "steps", self._step),
            "turns": self._hash(source, target, "turns", _turn),
            "out": self._hash(source, target, "out", lambda _, text: text),
            "runs": self._hash(source, target, "runs", lambda _, text: text),
            "items": self._hash(source, target, "items", lambda _, text: text),
            "artifacts": self._hash(source, target, "artifacts", lambda _, text: text),
            "ledger": self._list(source, target, "ledger"),
        }
        self._widths(source, target)
        return Copied(counts, self._cost_micros)

    def request(self, ref: SessionRef) -> str | None:
        """Read the document that a session was submitted with; None if none is stored."""
        return self._text(ref, "request")

    def environment(self, ref: SessionRef) -> str:
        """Read the encrypted environment of a session; '' for none."""
        return self._text(ref, "environment") or ""

    def definitions(self, ref: SessionRef) -> str:
        """Read the agent and tool definitions of a session's folder (JSON); '' for none."""
        return self._text(ref, "definitions") or ""

    def _text(self, ref: SessionRef, part: str) -> str | None:
        with self._away():
            found = self._redis.get(self._keys.part(ref, part))
        return None if found is None else str(found)

    def discard(self, target: SessionRef) -> None:
        """Delete the copied records of a fork that was refused."""
        parts = ("steps", "turns", "out", "runs", "items", "artifacts", "ledger", "widths")
        with self._away():
            self._redis.delete(*(self._keys.part(target, part) for part in parts))

    def _hash(
        self,
        source: SessionRef,
        target: SessionRef,
        part: str,
        convert: Callable[[str, str], str | None],
    ) -> int:
        for batch in self._batches(source, part):
            found = {name: convert(name, text) for name, text in batch.items()}
            self._put(target, part, {n: text for n, text in found.items() if text is not None})
        with self._away():
            return int(self._redis.hlen(self._keys.part(target, part)))

    def _batches(self, source: SessionRef, part: str) -> Iterator[Mapping[str, str]]:
        cursor, key = 0, self._keys.part(source, part)
        while True:
            with self._away():
                cursor, batch = self._redis.hscan(key, cursor, count=BATCH)
            yield cast("Mapping[str, str]", batch)
            if not cursor:
                return

    def _put(self, target: SessionRef, part: str, fields: Mapping[str, str]) -> None:
        if fields:
            key = self._keys.part(target, part)
            with self._away(), self._redis.pipeline(transaction=True) as pipe:
                pipe.hset(key, items=[one for pair in fields.items() for one in pair])
                pipe.expire(key, COPY_TTL_S)
                pipe.execute()

    def _list(self, source: SessionRef, target: SessionRef, part: str) -> int:
        start, old, new = 0, self._keys.part(source, part), self._keys.part(target, part)
        with self._away():
            end = int(self._redis.llen(old))
        while start < end:
            with self._away(), self._redis.pipeline(transaction=True) as pipe:
                lines = self._redis.lrange(old, start, min(start + BATCH, end) - 1)
                if not lines:
                    return start
                # A repeated batch replaces itself.
                pipe.ltrim(new, 0, start - 1) if start else pipe.delete(new)
                pipe.rpush(new, *lines)
                pipe.expire(new, COPY_TTL_S)
                pipe.execute()
            start += len(lines)
        return start

    def _step(self, _: str, text: str) -> str | None:
        """A step that has ended; what had not is left out, as if it had never started."""
        record = json.loads(text)
        if record["state"] not in _ENDED:
            return None
        self._cost_micros += record.get("cost_micros", 0)
        return json.dumps({name: v for name, v in record.items() if name not in _OF_ATTEMPTS})

    def _widths(self, source: SessionRef, target: SessionRef) -> None:
        """The widths of each for_each: those of its newest run, for they go when a session ends."""
        widths: dict[str, tuple[int, int]] = {}
        for batch in self._batches(source, "turns"):
            for address, text in batch.items():
                turn = json.loads(text)
                if turn.get("each") and turn.get("verdict") != "skipped":
                    place, _, run = address.rpartition("~")
                    widths[place] = max(widths.get(place, (0, 0)), (int(run), turn["width"]))
        self._put(target, "widths", {place: str(width) for place, (_, width) in widths.items()})
        for batch in self._batches(source, "widths"):
            self._put(target, "widths", batch)


def _turn(address: str, text: str) -> str | None:
    """A turn; one that was open is closed. The root is made by the new session."""
    if not address:
        return None
    turn = json.loads(text)
    if turn["state"] != "closed":
        reason = {**_SUPERSEDED, "at": address}
        turn |= {"state": "closed", "verdict": "cancelled", "reason": reason}
    return json.dumps(turn)
