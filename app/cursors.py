"""Where a page of a list ends, as a text that means nothing to whoever carries it back."""

from __future__ import annotations

import base64
import json

from pydantic import JsonValue

from app.errors import InvalidDocument

_MOST = 2**63


def encoded(place: JsonValue) -> str:
    """
    >>> place_of(encoded([1700000000000.0, "0000000a"]))
    [1700000000000.0, '0000000a']
    """
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def place_of(cursor: str) -> JsonValue:
    """What was encoded. Raises InvalidDocument for what never was."""
    try:
        place: JsonValue = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        raise not_ours(cursor) from None
    return place


def number_of(cursor: str | None) -> int:
    """The number that was encoded, 0 for no cursor. Raises InvalidDocument."""
    place = 0 if cursor is None else place_of(cursor)
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < _MOST:
        raise not_ours(str(cursor))
    return place


def address_of(cursor: str) -> str:
    """The address that was encoded. Raises InvalidDocument."""
    place = place_of(cursor)
    if not isinstance(place, str):
        raise not_ours(cursor)
    return place


def not_ours(cursor: str) -> InvalidDocument:
    """The error that says so."""
    return InvalidDocument("cursor", cursor, "use the `next` of the page before")
