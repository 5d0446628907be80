"""Publishes the output of the attempts of one process, by a thread and a connection of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Protocol

from app.core.addresses import SessionRef
from app.core.records import Grant, Reply
from app.sessions.outputs import RING_BYTES
from leadhand.errors import LeadhandError
from workers.live_output import LiveOutput, Part

log = logging.getLogger(__name__)

#: Between two publications.
EVERY_S = 0.25
#: What an entry of the ring takes beside its text, so that many short lines are bounded too.
ENTRY_BYTES = 64
#: For how long the last output of a body is retried while the store does not answer.
LAST_S = 30.0
#: After a store that did not answer.
PAUSE_S = 1.0


class Append(Protocol):
    """What `Outputs.append` does."""

    def __call__(
        self,
        ref: SessionRef,
        address: str,
        fence: int,
        parts: list[Part],
        *,
        oldest: str | None = None,
    ) -> Reply: ...


class Ring:
    """The entries of one attempt that are stored; the oldest are removed to make room."""

    def __init__(self, ref: SessionRef, grant: Grant, output: LiveOutput) -> None:
        self.ref = ref
        self.grant = grant
        self.output = output
        self._kept: deque[tuple[str, int]] = deque()
        self._size = 0
        self._ended = 0.0

    def is_late(self, now: float) -> bool:
        """Whether unsent output is dropped, LAST_S after the first call, which notes the end."""
        self._ended = self._ended or now
        return now - self._ended > LAST_S

    def append(self, append: Append, parts: list[Part]) -> Reply:
        """Publish parts of live output, and delete the oldest if there are too many."""
        sizes = [len(part.text.encode(errors="replace")) + ENTRY_BYTES for part in parts]
        oldest = self._make_room(sum(sizes))
        grant = self.grant
        answer = append(self.ref, grant.address, grant.fence, parts, oldest=oldest)
        for id_, size in zip(answer.ids, sizes, strict=answer.word == "kept"):
            self._kept.append((id_, size))
            self._size += size
        return answer

    def _make_room(self, coming: int) -> str | None:
        """The oldest entry that stays when so many bytes come; None where all stay."""
        dropped = None
        while self._kept and self._size + coming > RING_BYTES:
            dropped, size = self._kept.popleft()
            self._size -= size
        if dropped is None:
            return None
        return self._kept[0][0] if self._kept else after(dropped)


def after(entry: str) -> str:
    """Returns the smallest id of a stream entry that is greater than this one.

    >>> after("1700000000000-3")
    '1700000000000-4'
    """
    time_ms, _, number = entry.partition("-")
    return f"{time_ms}-{int(number) + 1}"


class OutputWriter:
    """Publishes the output of this process' attempts four times a second."""

    def __init__(self, append: Append) -> None:
        self._append = append
        self._rings: list[Ring] = []
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def open(self, ref: SessionRef, grant: Grant) -> LiveOutput:
        """Return a new writer for an attempt's live output, which a thread publishes."""
        return LiveOutput(lambda output: self._add(Ring(ref, grant, output)))

    def _add(self, ring: Ring) -> None:
        with self._lock:
            self._rings.append(ring)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="output", daemon=True)
                self._thread.start()
            self._lock.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._rings)
                rings = list(self._rings)
            answered = True
            for ring in rings:
                ended = ring.output.ended
                published = self._published(ring)
                answered = answered and published
                if ended and (published or ring.is_late(time.monotonic())):
                    with self._lock:
                        self._rings.remove(ring)
            time.sleep(EVERY_S if answered else PAUSE_S)

    def _published(self, ring: Ring) -> bool:
        try:
            return self._publish(ring)
        except Exception:  # a fault of the display must not end the attempt
            log.exception("output not published", extra={"session": ring.ref.id})
            return False

    def _publish(self, ring: Ring) -> bool:
        """Publish the new output; False if the store did not answer."""
        parts = ring.output.take(time.monotonic())
        if not parts:
            return True
        try:
            answer = ring.append(self._append, parts)
        except LeadhandError as error:
            log.info("output dropped", extra={"session": ring.ref.id, "why": str(error)})
            ring.output.put_back(parts)
            return False
        if answer.word != "kept":
            ring.output.put_back(parts)
        return True
