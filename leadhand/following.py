"""Follows a session's events over as many connections as it takes, without gap or double."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

from httpx2 import EventSource, ServerSentEvent
from pydantic import ValidationError

from leadhand.async_transport import AsyncTransport
from leadhand.errors import AnswerUnreadable, ApiAway, Unavailable
from leadhand.paths import session_path
from leadhand.patience import Patience
from leadhand.transport import Call, Outage, Reach, Transport
from leadhand.views import Event, SessionView, View

#: Where a record begins.
BEGINNING = "0-0"
#: The event that says that the session has ended; it stands in no record.
END = "end"
#: The event that says why the stream breaks off before that; who comes again misses nothing.
CUT = "cut"
#: The event that says that what was asked for is no longer kept; the oldest that is follows.
RESET = "reset"


def follow(transport: Transport, session: str, *, after: str = BEGINNING) -> Iterator[Event]:
    """Each event after the one named, the old ones first, until the session has ended.

    A connection that breaks is made anew from the last event that was seen. Where that is no
    longer kept, an event `reset` says so: its fields hold the session as it is, and the oldest
    event that is kept comes next. Raises ApiAway or Unavailable once no new event came for as long
    as the transport's patience.
    """
    trail = Trail(transport.reach, session, after)
    while True:
        failure: ApiAway | Unavailable | None = None
        try:
            with transport.stream(trail.call) as response:
                for told in EventSource(response):
                    event = trail.read(told, str(response.url))
                    if trail.has_ended:
                        return
                    if event is not None:
                        yield event
        except (ApiAway, Unavailable) as error:
            failure = error
        failure = failure or trail.closed_again
        pause_s = trail.broke(failure)
        if pause_s is None:
            raise failure
        time.sleep(pause_s)


async def follow_async(
    transport: AsyncTransport, session: str, *, after: str = BEGINNING
) -> AsyncIterator[Event]:
    """The same without a thread that waits."""
    trail = Trail(transport.reach, session, after)
    while True:
        failure: ApiAway | Unavailable | None = None
        try:
            async with transport.stream(trail.call) as response:
                async for told in EventSource(response):
                    event = trail.read(told, str(response.url))
                    if trail.has_ended:
                        return
                    if event is not None:
                        yield event
        except (ApiAway, Unavailable) as error:
            failure = error
        failure = failure or trail.closed_again
        pause_s = trail.broke(failure)
        if pause_s is None:
            raise failure
        await asyncio.sleep(pause_s)


class Trail:
    """How far somebody has followed a session, and for how long it may go on without news."""

    def __init__(self, reach: Reach, session: str, after: str) -> None:
        self._reach = reach
        self._path = session_path(session, "events")
        self._last = after
        self._patience, self._outage = Patience(reach.patience_s), Outage(reach)
        self._why = "it closes the stream again"
        self.has_ended = False

    @property
    def call(self) -> Call:
        """The call that goes on from the last event that was seen."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": self._last}
        return Call("GET", self._path, headers=headers)

    @property
    def closed_again(self) -> ApiAway:
        """What a stream that ends before its session does comes to."""
        return ApiAway(self._reach.url, self._why)

    def read(self, told: ServerSentEvent, url: str) -> Event | None:
        """The event that was told; None for what is none. Raises AnswerUnreadable."""
        if told.event == END:
            self.has_ended = True
        if told.event == CUT:
            self._why = f"it cuts the stream: {told.data}"
        if told.event in (END, CUT) or not told.data:
            return None
        if told.event == RESET:
            return _reset(told.data, self._last, url=url)
        event = _event(told.data, url=url)
        self._last = event.id
        self._patience.renew()
        self._outage = Outage(self._reach)
        return event

    def broke(self, failure: ApiAway | Unavailable) -> float | None:
        """How long to wait before the next connection; None once there was no news for too long."""
        self._outage.goes_on(failure)
        return self._patience.next_pause_s()


def _event(text: str, *, url: str) -> Event:
    try:
        return Event.model_validate_json(text)
    except ValidationError as error:
        raise AnswerUnreadable(url, 200) from error


def _reset(text: str, last: str, *, url: str) -> Event:
    """A mark of our own: what came after `last` and before the next event is no longer kept."""
    try:
        told = _Reset.model_validate_json(text)
    except ValidationError as error:
        raise AnswerUnreadable(url, 200) from error
    session = told.session.model_dump(mode="json")
    return Event(id=last, type=RESET, at_ms=told.at_ms, fields={"session": session})


class _Reset(View):
    at_ms: int
    session: SessionView
