"""Parses entries of the streams of events."""

from __future__ import annotations

import json
from collections.abc import Iterator

from leadhand.models.views.step import Event


def stream_entries(entries: object) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the id and fields of each entry in a Redis stream's reply, in RESP2 or RESP3 form."""
    assert isinstance(entries, list)
    for entry in entries:
        if isinstance(entry, list):
            yield from ((str(i), dict(f)) for i, f in entry)
        else:
            yield str(entry[0]), dict(entry[1])


def read_event(entry: tuple[str, dict[str, str]]) -> Event:
    """Converts an entry of a session's event stream (id and fields) to an Event."""
    id_, fields = entry
    return Event(
        id=id_,
        type=fields["t"],
        at_ms=int(fields["at"]),
        address=fields["a"] or None,
        fields=json.loads(fields["d"]) if fields["d"] else {},
    )
