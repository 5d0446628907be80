"""Reads the references to artifacts, and the output of running bodies: a bounded stream each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from app.core.addresses import SessionRef
from app.store.errors import StorePart

#: Before the first part of an attempt.
BEGINNING = "0-0"


class ArtifactReads(StorePart):
    """The hash `artifacts` of a session has ``address|name`` -> artifact (JSON), and its digests.

    The sorted set `artifacts` has ``digest|session|root``. It may name deleted sessions: the sweep
    of artifacts removes those lines.
    """

    def listed(self, ref: SessionRef) -> dict[str, str]:
        """Read which artifacts a session's steps refer to (JSON), by ``step address|name``."""
        with self._away():
            found = self._redis.hgetall(self._keys.part(ref, "artifacts"))
        fields = cast("dict[str, str]", found)
        return {name: text for name, text in fields.items() if "|" in name}

    def about(self, ref: SessionRef, digest: str) -> tuple[int, str] | None:
        """Read size and media type of an artifact; None if the session does not refer to it."""
        with self._away():
            found = self._redis.hget(self._keys.part(ref, "artifacts"), digest)
        if found is None:
            return None
        size, _, media_type = str(found).partition("|")
        return int(size), media_type

    def referenced(self, digests: Collection[str]) -> set[str]:
        """Return which digests a session refers to; deletes references of deleted sessions."""
        found = self._lines(digests)
        lines = [line for each in found.values() for line in each]
        living = self._living(lines)
        dead = [line for line in lines if line not in living]
        if dead:
            with self._away():
                self._redis.zrem(self._keys.everywhere("artifacts"), *dead)
        return {digest for digest, each in found.items() if not living.isdisjoint(each)}

    def _lines(self, digests: Collection[str]) -> dict[str, list[str]]:
        key = self._keys.everywhere("artifacts")
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for digest in digests:
                pipe.zrangebylex(key, f"[{digest}|", f"({digest}}}")
            answers = cast("list[list[str]]", pipe.execute())
        return dict(zip(digests, answers, strict=True))

    def _living(self, lines: Iterable[str]) -> set[str]:
        """The lines whose session exists and still has the reference."""
        lines = list(lines)
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for line in lines:
                digest, session, root = line.split("|")
                pipe.hexists(self._keys.part(SessionRef(session, root), "artifacts"), digest)
            answers = cast("list[bool]", pipe.execute())
        return {line for line, is_there in zip(lines, answers, strict=True) if is_there}


class StoredPart(NamedTuple):
    """One part of an attempt's output."""

    #: Its id in the stream: the server's time in ms, a dash and a number.
    id: str
    seq: int
    stream: str
    text: str
    #: Bytes that were dropped just before it.
    dropped: int

    @property
    def at_ms(self) -> int:
        """Return when the part was stored, in ms."""
        return int(self.id.partition("-")[0])


class OutputReads(StorePart):
    """The rings of one store, each named ``address#fence``."""

    def attempts(self, ref: SessionRef) -> list[tuple[str, int]]:
        """Read which attempts have stored output, with the time of its last part; oldest first."""
        key = self._keys.part(ref, "outputs")
        with self._away():
            rows = self._redis.zrange(key, 0, -1, withscores=True)
        return [(name, int(at)) for name, at in cast("list[tuple[str, float]]", rows)]

    def parts(
        self, ref: SessionRef, after: Mapping[str, str], *, limit: int | None = None
    ) -> dict[str, list[StoredPart]]:
        """Read the stored output of several attempts, each after an id, oldest first.

        At most `limit` of each.
        """
        if not after:
            return {}
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for attempt, last in after.items():
                pipe.xrange(self._keys.output(ref, attempt), min=f"({last}", count=limit)
            answers = pipe.execute()
        return {
            attempt: [_part(id_, fields) for id_, fields in entries]
            for attempt, entries in zip(after, answers, strict=True)
            if entries
        }

    def newest_parts(
        self, ref: SessionRef, attempts: Sequence[str], *, limit: int
    ) -> dict[str, list[StoredPart]]:
        """Read at most `limit` parts of the output of each attempt, newest first."""
        if not attempts:
            return {}
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for attempt in attempts:
                pipe.xrevrange(self._keys.output(ref, attempt), count=limit)
            answers = pipe.execute()
        return {
            attempt: [_part(id_, fields) for id_, fields in entries]
            for attempt, entries in zip(attempts, answers, strict=True)
        }


def _part(id_: str, fields: Mapping[str, str]) -> StoredPart:
    return StoredPart(id_, int(fields["n"]), fields["s"], fields["t"], int(fields["d"]))
