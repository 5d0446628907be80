"""One reader per process for the events of all watched sessions, and a bounded queue per client.

Each session that is watched has a feed with a cursor, the place up to which its events were handed
out. A client that joins moves the cursor back to where it stands, so it misses nothing; the others
pass over what they had. A read that began before the cursor was moved is thrown away.
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

from api.port import Engine
from app.errors import StoreAway
from app.views import Event
from leadhand.views import position

log = logging.getLogger("leadhand.api")

#: How long one read waits; a newly watched session is read at the latest after it.
BLOCK_MS = 250
#: How long the reader leaves a store alone that did not answer.
AWAY_PAUSE_S = 0.5
#: How many events may wait for a client before it is cut off as too slow.
QUEUED = 1000


class Cut(StrEnum):
    """Why a client gets no more events; what it has not had it gets when it comes again."""

    #: It read more slowly than events came.
    SLOW = "slow"
    #: This process goes down, or cannot read events.
    CLOSING = "closing"
    #: Redis does not answer.
    STORE_AWAY = "store away"
    #: Its token opens nothing any more.
    TOKEN = "token"  # noqa: S105 - the name of a reason


class StreamCut(Exception):
    """No more events come to this client."""

    def __init__(self, why: Cut) -> None:
        super().__init__(why)
        self.why = why


class Subscription:
    """What waits for one client: events in order, none of them twice."""

    def __init__(self, after: str, *, room: int = QUEUED) -> None:
        self._last = position(after)
        self._room = room
        self._waiting: deque[Event] = deque()
        self._news = threading.Condition()
        self._cut: Cut | None = None

    def offer(self, event: Event) -> None:
        """Queue an event that the client has not had; with no room left the client is cut off."""
        with self._news:
            if self._cut or position(event.id) <= self._last:
                return
            if len(self._waiting) >= self._room:
                self._cut = Cut.SLOW
                self._waiting.clear()
            else:
                self._waiting.append(event)
                self._last = position(event.id)
            self._news.notify()

    def cut(self) -> None:
        """Let the client come again."""
        with self._news:
            self._cut = self._cut or Cut.CLOSING
            self._news.notify()

    def take(self, timeout_s: float) -> Event | None:
        """The next event, or None where none came in time. Raises StreamCut."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._cut, timeout_s)
            if self._cut:
                raise StreamCut(self._cut)
            return self._waiting.popleft() if self._waiting else None


@dataclass
class _Feed:
    cursor: str
    clients: set[Subscription] = field(default_factory=set)


class Fanout:
    """The feeds of one process, and the thread that reads them while there are any."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._feeds: dict[str, _Feed] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._reader: threading.Thread | None = None

    @contextmanager
    def watch(self, session: str, *, after: str) -> Iterator[Subscription]:
        """Every event of the session after the one named, from now on."""
        subscription = Subscription(after)
        self._join(session, subscription, after)
        try:
            yield subscription
        finally:
            self._leave(session, subscription)

    def close(self) -> None:
        """End every stream; clients come again, to another process."""
        self._closing.set()
        with self._changed:
            self._cut_all()
            self._changed.notify()

    def _join(self, session: str, subscription: Subscription, after: str) -> None:
        with self._changed:
            if self._closing.is_set():
                subscription.cut()
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
            except Exception:  # a fault may end the streams, never the reader itself
                log.exception("events cannot be read")
                with self._changed:
                    self._cut_all()
                self._closing.wait(AWAY_PAUSE_S)

    def _read(self, cursors: Mapping[str, str]) -> Mapping[str, list[Event]]:
        since_s = time.monotonic()
        found = self._engine.events_many(cursors, block_ms=BLOCK_MS)
        if not found:
            # Of sessions that are gone an empty answer comes at once.
            self._closing.wait(max(0.0, since_s + BLOCK_MS / 1000 - time.monotonic()))
        return found

    def _cursors(self) -> dict[str, str]:
        """Where each feed stands, once there are any."""
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

    def _cut_all(self) -> None:
        for feed in self._feeds.values():
            for client in feed.clients:
                client.cut()
