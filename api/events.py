"""A session's events over HTTP: a page of them, or a stream that ends with the session (SSE)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from flask import Blueprint, Response, request

from api import bodies
from api.answers import answer
from api.auth import still_admitted
from api.bodies import EventsQuery
from api.fanout import Cut, Fanout, StreamCut, Subscription
from api.port import Engine
from api.refusals import too_many_streams
from app.errors import SessionUnknown, StoreAway
from app.states import ENDED
from app.views import Event, Page
from leadhand.views import position

#: Where a record begins.
BEGINNING = "0-0"
#: What every record begins with, until that is trimmed.
FIRST = "session.created"
STREAM = "text/event-stream"
#: How long a stream may be silent.
KEEP_ALIVE_S = 15.0
#: After how long a browser connects again.
RETRY_MS = 1000
#: How long a token that has ended may go on reading a stream that it opened.
RECHECK_S = 5.0
#: How many events are read at a time from what is there already.
BACKLOG = 500
#: How long a client may take to accept one event before its connection is given up.
SEND_TIMEOUT_S = 20.0


class Events:
    """Pages and streams of events; as many streams at once as this process has threads to spare."""

    def __init__(self, engine: Engine, fanout: Fanout, *, streams: int) -> None:
        self._engine = engine
        self._fanout = fanout
        self._streams = streams
        self._free = threading.BoundedSemaphore(streams)

    def of_session(self, session: str) -> Response:
        asked = bodies.query(EventsQuery)
        last = bodies.last_event_id() or asked.after or BEGINNING
        self._engine.session(session)
        if request.accept_mimetypes.best_match(["application/json", STREAM]) == STREAM:
            return self._stream(session, after=last)
        events = self._engine.events(session, after=last, limit=asked.limit)
        more = events[-1].id if len(events) == asked.limit else None
        return answer(Page[Event](items=events, next=more))

    def _stream(self, session: str, *, after: str) -> Response:
        if not self._free.acquire(blocking=False):
            raise too_many_streams(self._streams)
        held = ExitStack()
        held.callback(self._free.release)
        _give_up_on_stuck_clients()
        stream = EventStream(
            self._engine, self._fanout, session, after=after, admitted=still_admitted()
        )
        response = Response(stream.told(), mimetype=STREAM)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Accel-Buffering"] = "no"
        response.call_on_close(held.close)
        return response


class EventStream:
    """One client's stream: what is there already, then what comes, then the session's end."""

    def __init__(
        self,
        engine: Engine,
        fanout: Fanout,
        session: str,
        *,
        after: str,
        admitted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._engine = engine
        self._admitted = admitted
        self._checked_s = time.monotonic()
        self._fanout = fanout
        self._session = session
        self._last = after

    def told(self) -> Iterator[str]:
        """The stream's text. Where it breaks off before the session's end, it says why."""
        yield f"retry: {RETRY_MS}\n\n"
        try:
            yield from self._reset()
            yield from self._backlog()
            with self._fanout.watch(self._session, after=self._last) as live:
                yield from self._live(live)
        except StreamCut as cut:
            yield _farewell("cut", why=cut.why)
        except StoreAway:
            yield _farewell("cut", why=Cut.STORE_AWAY)
        except SessionUnknown:
            yield _farewell("end", status="deleted")

    def _live(self, live: Subscription) -> Iterator[str]:
        """What comes, until the session has ended and all was told."""
        event: Event | None = None
        while True:
            # Only what concerns the whole session can have ended it.
            if event is None or event.address is None:
                status = self._end()
                if status is not None:
                    yield from self._backlog()
                    yield _farewell("end", status=status)
                    return
            event = live.take(KEEP_ALIVE_S)
            if not self._may_go_on():
                raise StreamCut(Cut.TOKEN)
            if event is None:
                yield ": keep-alive\n\n"
            else:
                yield self._frame(event)

    def _may_go_on(self) -> bool:
        """Whether the token that opened the stream still opens it; asked every few seconds."""
        if time.monotonic() - self._checked_s < RECHECK_S:
            return True
        self._checked_s = time.monotonic()
        return self._admitted()

    def _backlog(self) -> Iterator[str]:
        while True:
            events = self._engine.events(self._session, after=self._last, limit=BACKLOG)
            for event in events:
                yield self._frame(event)
            if len(events) < BACKLOG:
                return

    def _reset(self) -> Iterator[str]:
        """Tell a client that what it asks for is no longer kept, and how the session is now."""
        kept = self._engine.events(self._session, after=BEGINNING, limit=1)
        if not kept or not _is_missing(kept[0], after=self._last):
            return
        view = self._engine.session(self._session)
        shown = view.model_dump(mode="json")
        told = {"first": kept[0].id, "at_ms": kept[0].at_ms, "session": shown}
        yield f"event: reset\ndata: {json.dumps(told)}\n\n"

    def _end(self) -> str | None:
        """The status that the session has ended with; None while it goes on."""
        try:
            status = self._engine.session(self._session).status
        except SessionUnknown:
            return "deleted"
        return status if status in ENDED else None

    def _frame(self, event: Event) -> str:
        self._last = event.id
        return f"id: {event.id}\nevent: {event.type}\ndata: {event.model_dump_json()}\n\n"


def _farewell(event: str, **told: str) -> str:
    """A frame that stands in no record; nothing comes after it."""
    return f"event: {event}\ndata: {json.dumps(told)}\n\n"


def _is_missing(oldest: Event, *, after: str) -> bool:
    """Whether events between this one and the oldest that is kept were trimmed."""
    if after == BEGINNING:
        return oldest.type != FIRST
    return position(oldest.id) > position(after)


def blueprint(engine: Engine, fanout: Fanout, *, streams: int) -> Blueprint:
    events = Events(engine, fanout, streams=streams)
    routes = Blueprint("events", __name__, url_prefix="/v1/sessions")
    routes.add_url_rule("/<session>/events", "of_session", events.of_session)
    return routes


def _give_up_on_stuck_clients() -> None:
    """Let a write to a client that reads no more fail, so that its thread comes free."""
    socket = request.environ.get("gunicorn.socket")
    if socket is not None:
        socket.settimeout(SEND_TIMEOUT_S)
