"""REST routes for what all sessions have in common: who needs a person, and what changed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Annotated

from flask import Blueprint, Response, request
from pydantic import Field

from api import requests
from api.auth import token_recheck
from api.dashboard.sockets import connection_check
from api.fanout import Cut
from api.responses import answer
from api.stream_limit import StreamLimit
from app.engine import Engine
from app.errors import StoreAway
from app.store.changes import Change, ChangeReads
from leadhand.models.views import ChangeView, Page, position

STREAM = "text/event-stream"
#: How often a stream looks for changes, sends a comment, and checks its token again.
EVERY_S, KEEP_ALIVE_S, RECHECK_S = 0.25, 15.0, 5.0
#: Changes per read.
BATCH = 500
BEGINNING = "0-0"


class ChangesQuery(requests.Query):
    """The page of the list of changes."""

    #: Only changes after this id; without it a page begins with the oldest, a stream with the next.
    after: Annotated[str, Field(pattern=r"^[0-9]{1,15}-[0-9]{1,15}$")] | None = None
    limit: requests.Limit = 100


class Attention:
    """One method per route."""

    def __init__(self, engine: Engine, streams: StreamLimit) -> None:
        self._engine = engine
        self._streams = streams

    def list_all(self) -> Response:
        """GET /v1/attention: list the sessions that need a person."""
        asked = requests.query(requests.PageQuery)
        return answer(self._engine.attention.page(limit=asked.limit, cursor=asked.cursor))

    def changes(self) -> Response:
        """GET /v1/events: return a page, or a stream, of the changes of all sessions."""
        asked = requests.query(ChangesQuery)
        last = requests.last_event_id() or asked.after
        if request.accept_mimetypes.best_match(["application/json", STREAM]) == STREAM:
            return self._stream(last)
        reads = self._engine.store.part(ChangeReads)
        found = reads.after(last or BEGINNING, limit=asked.limit)
        more = found[-1].id if len(found) == asked.limit else None
        return answer(Page[ChangeView](items=[_view(one) for one in found], next=more))

    def _stream(self, last: str | None) -> Response:
        still, is_gone = token_recheck(), connection_check()
        self._streams.take()
        frames = _frames(self._engine, last, still, is_gone, self._streams.closing)
        response = Response(frames, content_type=STREAM)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Accel-Buffering"] = "no"
        response.call_on_close(self._streams.release)
        return response


def _frames(
    engine: Engine,
    last: str | None,
    still: Callable[[], bool],
    is_gone: Callable[[], bool],
    closing: Event,
) -> Iterator[str]:
    """Yields the text of a stream; it ends with the process, Redis or the token."""
    reads = engine.store.part(ChangeReads)
    sent = checked = time.monotonic()
    yield "retry: 1000\n\n"
    try:
        first = reads.first()
        if last is not None and first is not None and position(first) > position(last):
            yield 'event: reset\ndata: {"why": "changes between were dropped"}\n\n'
        at = last or reads.last()
        while not (closing.wait(EVERY_S) or is_gone()):
            for one in reads.after(at, limit=BATCH):
                at, sent = one.id, time.monotonic()
                yield f"id: {one.id}\nevent: change\ndata: {_view(one).model_dump_json()}\n\n"
            now = time.monotonic()
            if now - sent >= KEEP_ALIVE_S:
                sent = now
                yield ": keep-alive\n\n"
            if now - checked >= RECHECK_S:
                checked = now
                if not still():
                    yield f"event: cut\ndata: {json.dumps({'why': 'token'})}\n\n"
                    return
        yield f"event: cut\ndata: {json.dumps({'why': Cut.CLOSING})}\n\n"
    except StoreAway:
        yield f"event: cut\ndata: {json.dumps({'why': 'store away'})}\n\n"


def _view(change: Change) -> ChangeView:
    return ChangeView(id=change.id, session=change.session, what=change.what)


def blueprint(engine: Engine, streams: StreamLimit) -> Blueprint:
    """Returns the Flask blueprint with the routes of attention and changes."""
    attention = Attention(engine, streams)
    routes = Blueprint("attention", __name__, url_prefix="/v1")
    routes.add_url_rule("/attention", "listed", attention.list_all)
    routes.add_url_rule("/events", "changes", attention.changes)
    return routes
