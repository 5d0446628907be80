"""Parses entries of the streams of events."""

from __future__ import annotations

import json
from collections.abc import Iterator

from leadhand.models.views import Event


def stream_entries(entries: object) -> Iterator[tuple[str, dict[str, str]]]:
    """Returns the entries of a stream reply; RESP3 nests them one level deeper than RESP2."""
    assert isinstance(entries, list)
    for entry in entries:
        if isinstance(entry, list):
            yield from ((str(i), dict(f)) for i, f in entry)
        else:
            yield str(entry[0]), dict(entry[1])


def read_event(entry: tuple[str, dict[str, str]]) -> Event:
    """Parses a stream entry to an event."""
    id_, fields = entry
    return Event(
        id=id_,
        type=fields["t"],
        at_ms=int(fields["at"]),
        address=fields["a"] or None,
        fields=json.loads(fields["d"]) if fields["d"] else {},
    )
