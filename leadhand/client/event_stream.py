# Generated from async_event_stream.py by scripts/client.py: do not edit.
"""The synchronous event stream of a session: reconnects without gaps or duplicates."""

from __future__ import annotations

import time
from collections.abc import Iterator

from httpx2 import EventSource

from leadhand.client.event_trail import BEGINNING, Trail
from leadhand.client.transport import Transport
from leadhand.errors import ApiAway, Unavailable
from leadhand.models.views import Event


def follow(
    transport: Transport, session: str, *, after: str = BEGINNING, output: bool = False
) -> Iterator[Event]:
    """Yields a session's events after a position until it ends; reconnects if the stream breaks.

    Reconnects after the last event if the connection breaks. If the next events are deleted, yields
    an event `reset`, whose fields have the session as it is, and then the oldest event left. Raises
    ApiAway or Unavailable if no event comes within the transport's patience.

    With `output`, also yields events of type `output`, which have no id of their own: theirs is the
    id of the event before them.
    """
    trail = Trail(transport.reach, session, after, output=output)
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
        failure = failure or trail.closed_again
        pause_s = trail.pause_after(failure)
        if pause_s is None:
            raise failure
        time.sleep(pause_s)
