"""The event stream of a page: it names the parts that changed, and the browser fetches them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from threading import Event

from flask import Blueprint, Response, request

from api.auth import token_recheck
from api.dashboard.sockets import connection_check
from api.streams import StreamLimit
from app.domain.ids import SessionRef
from app.engine import Engine
from app.errors import StoreAway
from app.store.changes import ChangeReads

#: How often a browser is sent changes.
EVERY_S = 0.25
KEEP_ALIVE_S = 15.0
RECHECK_S = 5.0
#: A stream ends after this, and the browser connects again: a thread is not held for ever.
LONGEST_S = 3600.0
_NEVER = "0-0"


class Streams:
    """Serves the streams; their number is limited."""

    def __init__(self, engine: Engine, limit: StreamLimit) -> None:
        self._engine = engine
        self._limit = limit

    def stream(self) -> Response:
        """GET /ui/stream: events named `changed`, with what changed as their data."""
        session = request.args.get("session")
        ref = self._engine.queries.ref(session) if session else None
        still, is_gone = token_recheck(), connection_check()
        self._limit.take()
        stream = _Stream(self._engine, ref, still, is_gone, self._limit.closing)
        response = Response(stream.frames(), content_type="text/event-stream")
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Accel-Buffering"] = "no"
        response.call_on_close(self._limit.release)
        return response

    def add_to(self, routes: Blueprint) -> None:
        """Register the route."""
        routes.add_url_rule("/stream", "stream", self.stream)


class _Stream:
    """The stream of one page."""

    def __init__(
        self,
        engine: Engine,
        ref: SessionRef | None,
        still: Callable[[], bool],
        is_gone: Callable[[], bool],
        closing: Event,
    ) -> None:
        self._closing = closing
        self._is_gone = is_gone
        self._ref = ref
        self._still = still
        self._changes = engine.store.part(ChangeReads)
        self._began = self._checked = self._sent = time.monotonic()

    def frames(self) -> Iterator[str]:
        """Yields the text of the stream. A page fetches all its parts when it connects."""
        try:  # first: what changes while the page fetches its parts is sent
            last, at = self._changes.last(), self._last_event()
        except StoreAway:
            return
        yield "retry: 1000\n\nevent: hello\ndata: {}\n\n"
        while time.monotonic() - self._began < LONGEST_S:
            if self._closing.wait(EVERY_S) or self._is_gone():
                return
            try:
                newest, event = self._changes.last(), self._last_event()
            except StoreAway:
                return
            now = time.monotonic()
            if not self._is_allowed(now):
                return
            changed = {"sessions": newest != last, "session": event != at}
            topics = [topic for topic, is_new in changed.items() if is_new]
            last, at = newest, event
            if topics:
                self._sent = now
                yield f"event: changed\ndata: {json.dumps(topics)}\n\n"
            elif now - self._sent >= KEEP_ALIVE_S:
                self._sent = now
                yield ": keep-alive\n\n"

    def _last_event(self) -> str:
        return _NEVER if self._ref is None else self._changes.last_event(self._ref)

    def _is_allowed(self, now: float) -> bool:
        if now - self._checked < RECHECK_S:
            return True
        self._checked = now
        return self._still()
