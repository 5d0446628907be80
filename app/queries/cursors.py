"""Encodes the position of a list as an opaque cursor, and decodes it."""

from __future__ import annotations

import base64
import json

from pydantic import JsonValue

from app.errors import InvalidDocument

_MOST = 2**63


def encode_cursor(place: JsonValue) -> str:
    """Encodes a position in a list as a cursor for the next page.

    >>> decode_cursor(encode_cursor([1700000000000.0, "0000000a"]))
    [1700000000000.0, '0000000a']
    """
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def decode_cursor(cursor: str) -> JsonValue:
    """Decodes a cursor to a position. Raises InvalidDocument for any other text."""
    try:
        place: JsonValue = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        raise invalid_cursor(cursor) from None
    return place


def number_of(cursor: str | None) -> int:
    """Decodes a page cursor to the number in it; 0 without a cursor. Raises InvalidDocument."""
    place = 0 if cursor is None else decode_cursor(cursor)
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < _MOST:
        raise invalid_cursor(str(cursor))
    return place


def address_of(cursor: str) -> str:
    """Decodes a page cursor to the text in it, such as a step's address. Raises InvalidDocument."""
    place = decode_cursor(cursor)
    if not isinstance(place, str):
        raise invalid_cursor(cursor)
    return place


def invalid_cursor(cursor: str) -> InvalidDocument:
    """Returns (does not raise) the InvalidDocument error for an invalid page cursor."""
    return InvalidDocument("cursor", cursor, "use the `next` of the page before")
