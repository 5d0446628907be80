"""Serves a session's events: pages, or a server-sent event stream (SSE)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from flask import Response, request

from api import requests
from api.auth import token_recheck
from api.fanout import Cut, Fanout, StreamCut, Subscription
from api.serving import Call, current_api, serves
from app.core.states import ENDED
from app.engine import Engine
from app.sessions.outputs import OutputCursor, follow_outputs, output_part
from app.sessions.queries import Queries
from leadhand.contract import sessions
from leadhand.contract.operation import EVENT_STREAM
from leadhand.contract.sessions import StreamQuery
from leadhand.errors import SessionUnknown, StoreAway
from leadhand.models.views.step import Event, position
from leadhand.models.views.view import Page

#: The position before the first event.
BEGINNING = "0-0"
#: The type of the first event, unless it was trimmed.
FIRST = "session.created"
#: Interval of keep-alive comments.
KEEP_ALIVE_S = 15.0
#: Interval between two reads of output, and how long after the end the last of it may come.
OUTPUT_EVERY_S = 0.25
LAST_OUTPUT_S = 0.6
#: Reconnection delay of browsers.
RETRY_MS = 1000
#: Interval at which a stream re-checks its token.
RECHECK_S = 5.0
#: Batch size for existing events.
BACKLOG = 500
#: Time-out for sending one event to a client.
SEND_TIMEOUT_S = 20.0


@serves(sessions.EVENTS)
def of_session(engine: Engine, call: Call, asked: StreamQuery) -> Response | Page[Event]:
    """Returns a page, or a stream, of a session's events."""
    last = requests.last_event_id() or asked.after or BEGINNING
    engine.queries.session(call.session)
    if request.accept_mimetypes.best_match(["application/json", EVENT_STREAM]) == EVENT_STREAM:
        return _stream(engine, call.session, after=last, with_output=asked.output)
    events = engine.queries.events(call.session, after=last, limit=asked.limit)
    more = events[-1].id if len(events) == asked.limit else None
    return Page[Event](items=events, next=more)


def _stream(engine: Engine, session: str, *, after: str, with_output: bool) -> Response:
    api = current_api()
    api.streams.take()
    held = ExitStack()
    held.callback(api.streams.release)
    _give_up_on_stuck_clients()
    stream = EventStream(
        engine.queries,
        api.fanout,
        session,
        after=after,
        admitted=token_recheck(),
        output=follow_outputs(engine, session) if with_output else None,
    )
    return stream_response(stream.frames(), held.close)


def stream_response(frames: Iterator[str], on_close: Callable[[], object]) -> Response:
    """Returns a response that sends an event stream; no proxy may keep any of it."""
    response = Response(frames, mimetype=EVENT_STREAM)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(on_close)
    return response


class EventStream:
    """One client's stream: existing events, then new ones, then the session's end."""

    def __init__(
        self,
        queries: Queries,
        fanout: Fanout,
        session: str,
        *,
        after: str,
        admitted: Callable[[], bool] = lambda: True,
        output: OutputCursor | None = None,
    ) -> None:
        self._output = output
        self._queries = queries
        self._admitted = admitted
        self._checked_s = time.monotonic()
        self._fanout = fanout
        self._session = session
        self._last = after
        self._sent_s = time.monotonic()
        self._read_s = 0.0

    def frames(self) -> Iterator[str]:
        """Yields the stream's text: stored events, new ones, then the end or why it was cut."""
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
        """Yields new events until the session has ended and all events were sent."""
        may_have_ended = True
        while True:
            if may_have_ended:
                status = self._end()
                if status is not None:
                    yield from self._backlog()
                    yield from self._last_output()
                    yield _farewell("end", status=status)
                    return
            event = live.take(KEEP_ALIVE_S if self._output is None else OUTPUT_EVERY_S)
            if not self._token_is_valid():
                raise StreamCut(Cut.TOKEN)
            yield from self._new_output()
            # Only an event of the whole session can have ended it; where all is quiet, ask anyway.
            quiet = time.monotonic() - self._sent_s >= KEEP_ALIVE_S
            may_have_ended = quiet if event is None else event.address is None
            if event is not None:
                yield self._frame(event)
            elif quiet:
                self._sent_s = time.monotonic()
                yield ": keep-alive\n\n"

    def _new_output(self) -> Iterator[str]:
        """What bodies wrote since the last look: events without an id, as no record keeps them."""
        if self._output is None or time.monotonic() - self._read_s < OUTPUT_EVERY_S:
            return
        self._read_s = time.monotonic()
        for address, fence, part in self._output.read():
            fields = output_part(part).model_dump(mode="json")
            shown = {"address": address, "fence": fence, **fields}
            self._sent_s = time.monotonic()
            yield f"event: output\ndata: {json.dumps(shown)}\n\n"

    def _last_output(self) -> Iterator[str]:
        """The output that was written just before the end: it is published a moment later."""
        if self._output is not None:
            time.sleep(LAST_OUTPUT_S)
            yield from self._new_output()

    def _token_is_valid(self) -> bool:
        """Whether the stream's token is still valid; re-checked every few seconds."""
        if time.monotonic() - self._checked_s < RECHECK_S:
            return True
        self._checked_s = time.monotonic()
        return self._admitted()

    def _backlog(self) -> Iterator[str]:
        while True:
            events = self._queries.events(self._session, after=self._last, limit=BACKLOG)
            for event in events:
                yield self._frame(event)
            if len(events) < BACKLOG:
                return

    def _reset(self) -> Iterator[str]:
        """Yields a reset event if requested events were trimmed, with the session's state."""
        kept = self._queries.events(self._session, after=BEGINNING, limit=1)
        if not kept or not _is_missing(kept[0], after=self._last):
            return
        view = self._queries.session(self._session)
        shown = view.model_dump(mode="json")
        data = {"first": kept[0].id, "at_ms": kept[0].at_ms, "session": shown}
        yield f"event: reset\ndata: {json.dumps(data)}\n\n"

    def _end(self) -> str | None:
        """The session's final status; None while it is active."""
        try:
            status = self._queries.session(self._session).status
        except SessionUnknown:
            return "deleted"
        return status if status in ENDED else None

    def _frame(self, event: Event) -> str:
        self._last, self._sent_s = event.id, time.monotonic()
        return f"id: {event.id}\nevent: {event.type}\ndata: {event.model_dump_json()}\n\n"


def _farewell(event: str, **data: str) -> str:
    """The last frame of a stream, which is not a stored event."""
    return f"event: {event}\ndata: {json.dumps(data)}\n\n"


def _is_missing(oldest: Event, *, after: str) -> bool:
    """Whether events between `after` and the oldest stored one were trimmed."""
    if after == BEGINNING:
        return oldest.type != FIRST
    return position(oldest.id) > position(after)


def _give_up_on_stuck_clients() -> None:
    """Set a send time-out, so that a client that stops reading frees its thread."""
    socket = request.environ.get("gunicorn.socket")
    if socket is not None:
        socket.settimeout(SEND_TIMEOUT_S)
