"""Fan-out of events: one reader per process, and a bounded queue per client.

Each watched session has a feed with a cursor, the last event that was handed out. A client that
joins moves the cursor back to its own position, so that it misses nothing; the other clients skip
events that they had. A read that started before the cursor moved is discarded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from leadhand.errors import StoreAway, TooManyStreams
from leadhand.models.views.step import Event, position

log = logging.getLogger("leadhand.api")
#: Maximum wait of a read, and so the delay before a newly watched session is read.
BLOCK_MS = 250
#: Pause of the reader after the store did not respond.
AWAY_PAUSE_S = 0.5
#: Maximum queue of a client before it is disconnected as too slow.
QUEUED = 1000


class Cut(StrEnum):
    """Why a client is disconnected; it gets the missed events when it reconnects."""

    #: It read more slowly than events came.
    SLOW = "slow"
    #: This process shuts down, or cannot read events.
    CLOSING = "closing"
    #: Redis does not answer.
    STORE_AWAY = "store away"
    #: Its token is no longer valid.
    TOKEN = "token"  # noqa: S105 - the name of a reason


class StreamCut(Exception):
    """The client is disconnected."""

    def __init__(self, why: Cut) -> None:
        super().__init__(why)
        self.why = why


class Subscription:
    """The queue of one client: events in order, without duplicates."""

    def __init__(self, after: str, *, room: int = QUEUED) -> None:
        self._last = position(after)
        self._room = room
        self._waiting: deque[Event] = deque()
        self._news = threading.Condition()
        self._reason: Cut | None = None

    def offer(self, event: Event) -> None:
        """Queues an event unless the client has it already; a full queue disconnects the client."""
        with self._news:
            if self._reason or position(event.id) <= self._last:
                return
            if len(self._waiting) >= self._room:
                self._reason = Cut.SLOW
                self._waiting.clear()
            else:
                self._waiting.append(event)
                self._last = position(event.id)
            self._news.notify()

    def disconnect(self) -> None:
        """Ends the subscription: the next `take` raises StreamCut, and the client reconnects."""
        with self._news:
            self._reason = self._reason or Cut.CLOSING
            self._news.notify()

    def take(self, timeout_s: float) -> Event | None:
        """Returns the next event, or None after the timeout. Raises StreamCut once disconnected."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._reason, timeout_s)
            if self._reason:
                raise StreamCut(self._reason)
            return self._waiting.popleft() if self._waiting else None


@dataclass
class _Feed:
    cursor: str
    clients: set[Subscription] = field(default_factory=set)


class EventReader(Protocol):
    def __call__(self, after: Mapping[str, str], *, block_ms: int) -> Mapping[str, list[Event]]:
        """Return the events of each session after an id; waits up to `block_ms` for the first."""


class Fanout:
    """The feeds of one process, and the thread that reads them."""

    def __init__(self, read: EventReader) -> None:
        self._read_events = read
        self._feeds: dict[str, _Feed] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._reader: threading.Thread | None = None

    @contextmanager
    def watch(self, session: str, *, after: str) -> Iterator[Subscription]:
        """Context manager that subscribes to a session's events after the event id `after`."""
        subscription = Subscription(after)
        self._join(session, subscription, after)
        try:
            yield subscription
        finally:
            self._leave(session, subscription)

    def close(self) -> None:
        """Closes every stream; clients reconnect to another process."""
        self._closing.set()
        with self._changed:
            self._disconnect_all()
            self._changed.notify()

    def _join(self, session: str, subscription: Subscription, after: str) -> None:
        with self._changed:
            if self._closing.is_set():
                subscription.disconnect()
            feed = self._feeds.setdefault(session, _Feed(after))
            feed.cursor = min(feed.cursor, after, key=position)
            feed.clients.add(subscription)
            if self._reader is None:
                self._reader = threading.Thread(target=self._run, name="events", daemon=True)
                self._reader.start()
            self._changed.notify()

    def _leave(self, session: str, subscription: Subscription) -> None:
        with self._changed:
            feed = self._feeds.get(session)
            if feed is None:
                return
            feed.clients.discard(subscription)
            if not feed.clients:
                del self._feeds[session]

    def _run(self) -> None:
        while not self._closing.is_set():
            cursors = self._cursors()
            if not cursors:
                continue
            try:
                self._hand_out(cursors, self._read(cursors))
            except StoreAway:
                self._closing.wait(AWAY_PAUSE_S)
            except Exception:  # an error may end the streams, but not the reader
                log.exception("events cannot be read")
                with self._changed:
                    self._disconnect_all()
                self._closing.wait(AWAY_PAUSE_S)

    def _read(self, cursors: Mapping[str, str]) -> Mapping[str, list[Event]]:
        since_s = time.monotonic()
        found = self._read_events(cursors, block_ms=BLOCK_MS)
        if not found:
            # For deleted sessions the reply is empty and immediate.
            self._closing.wait(max(0.0, since_s + BLOCK_MS / 1000 - time.monotonic()))
        return found

    def _cursors(self) -> dict[str, str]:
        """The cursor of each feed; waits until there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._feeds or self._closing.is_set())
            return {session: feed.cursor for session, feed in self._feeds.items()}

    def _hand_out(self, cursors: Mapping[str, str], found: Mapping[str, list[Event]]) -> None:
        with self._changed:
            for session, events in found.items():
                feed = self._feeds.get(session)
                if feed is None or feed.cursor != cursors[session]:
                    continue
                for event in events:
                    for client in feed.clients:
                        client.offer(event)
                    feed.cursor = event.id

    def _disconnect_all(self) -> None:
        for feed in self._feeds.values():
            for client in feed.clients:
                client.disconnect()


class StreamLimit:
    """The streams of all routes: each has a thread, and some threads are left for other calls."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = threading.BoundedSemaphore(most)
        #: Set when the process ends: each stream ends, and its client connects again.
        self.closing = threading.Event()

    def take(self) -> None:
        """Reserves one of the allowed streams. Raises Refused if all are in use."""
        if not self._free.acquire(blocking=False):
            raise TooManyStreams(self._most)

    def release(self) -> None:
        """Frees a reserved stream."""
        self._free.release()
