"""Follows a session's events over as many connections as it takes, without gap or double."""

from __future__ import annotations

from collections.abc import Iterator

from httpx2 import EventSource, ServerSentEvent
from pydantic import ValidationError

from leadhand.errors import AnswerUnreadable, ApiAway, Unavailable
from leadhand.paths import session_path
from leadhand.patience import Patience
from leadhand.transport import Call, Outage, Transport
from leadhand.views import Event

#: Where a record begins.
BEGINNING = "0-0"
#: The event that says that the session has ended; it stands in no record.
END = "end"
#: The event that says that what was asked for is no longer kept; the oldest that is follows.
RESET = "reset"


def follow(transport: Transport, session: str, *, after: str = BEGINNING) -> Iterator[Event]:
    """Each event after the one named, the old ones first, until the session has ended.

    A connection that breaks is made anew from the last event that was seen. Raises ApiAway or
    Unavailable once no new event came for as long as the transport's patience.
    """
    last = after
    patience, outage = Patience(transport.patience_s), Outage(transport)
    while True:
        failure: ApiAway | Unavailable = ApiAway(transport.url, "it closes the stream again")
        try:
            for event in _one_connection(transport, session, after=last):
                if event is None:
                    return
                last = event.id
                patience.renew()
                outage = Outage(transport)
                yield event
        except (ApiAway, Unavailable) as error:
            failure = error
        outage.goes_on(failure)
        if not patience.pause():
            raise failure


def _one_connection(transport: Transport, session: str, *, after: str) -> Iterator[Event | None]:
    """What one connection brings; None is the session's end."""
    headers = {"Accept": "text/event-stream", "Last-Event-ID": after}
    call = Call("GET", session_path(session, "events"), headers=headers)
    with transport.stream(call) as response:
        for told in EventSource(response):
            if told.event == END:
                yield None
            elif told.data and told.event != RESET:
                yield _event(told, url=str(response.url))


def _event(told: ServerSentEvent, *, url: str) -> Event:
    try:
        return Event.model_validate_json(told.data)
    except ValidationError as error:
        raise AnswerUnreadable(url, 200) from error
