"""The event stream of a session: reconnects without gaps or duplicates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime

from httpx2 import EventSource, ServerSentEvent
from pydantic import ValidationError

from leadhand.client.transport import AsyncTransport, Outage, Patience, Transport
from leadhand.contract import sessions
from leadhand.contract.calls import Call, Reach
from leadhand.contract.requests import path_of
from leadhand.errors import AnswerUnreadable, ApiAway, Unavailable
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import Event, OutputPart
from leadhand.models.views.view import View

#: The position before the first event.
BEGINNING = "0-0"
#: The stream event that says that the session has ended; it is not stored.
END = "end"
#: The stream event that says why the server closes the stream early; reconnecting loses nothing.
CUT = "cut"
#: The stream event that says that events after the position are deleted; the oldest left follows.
RESET = "reset"
#: The stream event with the output of a running body; it is not stored.
OUTPUT = "output"


class Trail:
    """The position in an event stream, and the retries since the last event."""

    def __init__(
        self, reach: Reach, session: str, after: str | None, *, output: bool = False
    ) -> None:
        self._reach = reach
        self._path = path_of(sessions.EVENTS, session)
        self._output = output
        #: The last part seen of each attempt: a new connection repeats all that is kept.
        self._seen: dict[tuple[str, int], int] = {}
        self._last = after or BEGINNING
        self._patience, self._outage = Patience(reach.patience_s), Outage(reach)
        self._why = "it closes the stream again"
        self.has_ended = False

    @property
    def call(self) -> Call:
        """Return the request that continues the event stream after the last event."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": self._last}
        params = {"output": "true"} if self._output else {}
        return Call("GET", self._path, params=params, headers=headers)

    def read(self, message: ServerSentEvent, url: str) -> Event | None:
        """Parse a stream message to an event or None; updates position, retries and `has_ended`."""
        if message.event == END:
            self.has_ended = True
        if message.event == CUT:
            self._why = f"it cuts the stream: {message.data}"
        if message.event in (END, CUT) or not message.data:
            return None
        if message.event == RESET:
            return _reset(message.data, self._last, url=url)
        if message.event == OUTPUT:
            return self._part(message.data, url=url)
        event = _event(message.data, url=url)
        self._last = event.id
        self._patience.renew()
        self._outage = Outage(self._reach)
        return event

    def _part(self, text: str, *, url: str) -> Event | None:
        """An event for a part of output; None if an earlier connection delivered it."""
        try:
            part = _Output.model_validate_json(text)
        except ValidationError as error:
            raise AnswerUnreadable(url, 200) from error
        last = self._seen.get((part.address, part.fence))
        if last is not None and part.seq <= last:
            return None
        self._patience.renew()
        self._outage = Outage(self._reach)
        self._seen[part.address, part.fence] = part.seq
        fields = part.model_dump(mode="json", exclude={"address", "at"})
        fields["missing"] = part.seq - last - 1 if last is not None else 0
        at_ms = round(datetime.fromisoformat(part.at).timestamp() * 1000)
        return Event(id=self._last, type=OUTPUT, at_ms=at_ms, address=part.address, fields=fields)

    def pause_after(self, failure: ApiAway | Unavailable | None) -> float:
        """Count a failure, or None for a stream that closed early; return the pause before a retry.

        Raises the failure after the deadline.
        """
        failure = failure or ApiAway(self._reach.url, self._why)
        self._outage.add_failure(failure)
        pause_s = self._patience.next_pause_s()
        if pause_s is None:
            raise failure
        return pause_s


def follow(transport: Transport, trail: Trail) -> Iterator[Event]:
    """Yields a session's events after a position until it ends.

    Reconnects after the last event if the connection breaks. If the next events are deleted, yields
    an event `reset`, whose fields have the session as it is, and then the oldest event left. Raises
    ApiAway or Unavailable if no event comes within the transport's patience.

    Events of type `output` have no id of their own: theirs is the id of the event before them.
    """
    while True:
        failure: ApiAway | Unavailable | None = None
        try:
            with transport.stream(trail.call) as response:
                for message in EventSource(response):
                    event = trail.read(message, str(response.url))
                    if trail.has_ended:
                        return
                    if event is not None:
                        yield event
        except (ApiAway, Unavailable) as error:
            failure = error
        time.sleep(trail.pause_after(failure))


async def follow_async(transport: AsyncTransport, trail: Trail) -> AsyncIterator[Event]:
    """Yields the events that `follow` yields, in an event loop."""
    while True:
        failure: ApiAway | Unavailable | None = None
        try:
            async with transport.stream(trail.call) as response:
                async for message in EventSource(response):
                    event = trail.read(message, str(response.url))
                    if trail.has_ended:
                        return
                    if event is not None:
                        yield event
        except (ApiAway, Unavailable) as error:
            failure = error
        await asyncio.sleep(trail.pause_after(failure))


def _event(text: str, *, url: str) -> Event:
    try:
        return Event.model_validate_json(text)
    except ValidationError as error:
        raise AnswerUnreadable(url, 200) from error


def _reset(text: str, last: str, *, url: str) -> Event:
    """A `reset` event: events between `last` and the next event are deleted."""
    try:
        message = _Reset.model_validate_json(text)
    except ValidationError as error:
        raise AnswerUnreadable(url, 200) from error
    session = message.session.model_dump(mode="json")
    return Event(id=last, type=RESET, at_ms=message.at_ms, fields={"session": session})


class _Output(OutputPart):
    address: str
    fence: int


class _Reset(View):
    at_ms: int
    session: SessionView
