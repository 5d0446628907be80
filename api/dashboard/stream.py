"""The event stream of a browser: it names what changed, and its tabs fetch those parts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Event

from flask import Blueprint, Response, request

from api.auth import token_recheck
from api.fanout import StreamLimit
from app.core.addresses import SessionRef
from app.engine import Engine
from app.store.changes import ChangeReads
from leadhand.errors import StoreAway

#: Seconds in which a client must take what is sent.
SEND_TIMEOUT_S = 20.0
#: How often a browser is sent changes.
EVERY_S = 0.25
#: A browser that has heard nothing for three of these takes the connection for dead.
BEAT_S = 5.0
RECHECK_S = 5.0
#: A stream ends after this, and the browser connects again: a thread is not held for ever.
LONGEST_S = 3600.0
#: Sessions that one stream watches, beside the changes of all sessions.
SESSIONS = 32


def connection_check() -> Callable[[], bool]:
    """Returns a check whether this request's client has disconnected; limits the time of a send.

    A thread that only waits for changes would not notice it, and would continue.
    """
    connection = request.environ.get("gunicorn.socket")
    if connection is None:
        return lambda: False
    connection.settimeout(SEND_TIMEOUT_S)
    is_closed: Callable[[], bool] = connection.is_closed
    return is_closed


class Streams:
    """Serves the streams; their number is limited."""

    def __init__(self, engine: Engine, limit: StreamLimit) -> None:
        self._engine = engine
        self._limit = limit

    def stream(self) -> Response:
        """GET /ui/stream: send an event `changed` to the browser for each change.

        Each tab may show another session. One that is deleted does not end the stream.
        """
        asked = dict.fromkeys(request.args.getlist("session")[:SESSIONS])
        found = [self._engine.store.ref(session) for session in asked]
        refs = [ref for ref in found if ref is not None]
        still, is_gone = token_recheck(), connection_check()
        self._limit.take()
        stream = _Stream(self._engine, refs, still, is_gone, self._limit.closing)
        response = Response(stream.frames(), content_type="text/event-stream")
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Accel-Buffering"] = "no"
        response.call_on_close(self._limit.release)
        return response

    def add_to(self, routes: Blueprint) -> None:
        """Registers the route of the stream of changes."""
        routes.add_url_rule("/stream", "stream", self.stream)


class _Stream:
    """The stream of one browser."""

    def __init__(
        self,
        engine: Engine,
        refs: Sequence[SessionRef],
        still: Callable[[], bool],
        is_gone: Callable[[], bool],
        closing: Event,
    ) -> None:
        self._closing = closing
        self._is_gone = is_gone
        self._refs = refs
        self._still = still
        self._changes = engine.store.part(ChangeReads)
        self._began = self._checked = self._sent = time.monotonic()

    def frames(self) -> Iterator[str]:
        """Yields the text of the stream. A page fetches all its parts when it connects."""
        try:  # first: what changes while the page fetches its parts is sent
            known = self._read()
        except StoreAway:
            return
        yield "retry: 1000\n\nevent: hello\ndata: {}\n\n"
        while time.monotonic() - self._began < LONGEST_S:
            if self._closing.wait(EVERY_S) or self._is_gone():
                return
            try:
                newest = self._read()
            except StoreAway:
                return
            now = time.monotonic()
            if not self._is_allowed(now):
                return
            topics = [topic for topic, last in newest.items() if known[topic] != last]
            known = newest
            if topics:
                self._sent = now
                yield f"event: changed\ndata: {json.dumps(topics)}\n\n"
            elif now - self._sent >= BEAT_S:
                self._sent = now
                yield "event: beat\ndata: {}\n\n"

    def _read(self) -> dict[str, str]:
        """The newest id of each topic: `sessions`, and `session:ID` of each watched session."""
        last = {"sessions": self._changes.last()}
        for ref, event in zip(self._refs, self._changes.last_events(self._refs), strict=True):
            last[f"session:{ref.id}"] = event
        return last

    def _is_allowed(self, now: float) -> bool:
        if now - self._checked < RECHECK_S:
            return True
        self._checked = now
        return self._still()
