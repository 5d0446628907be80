"""Encodes the sessions that a preview of a bulk operation counted, as a token (pure)."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from app.errors import InvalidDocument

#: Maximum size of a token, in characters, and of what it contains, in bytes.
LONGEST = 100_000
_MOST_BYTES = 500_000
_VERSION = "b1."
_ID = re.compile("[0-9a-f]{8}")


class Counted(NamedTuple):
    """A session as the preview read it."""

    session: str
    status: str
    updated_ms: int


def make_token(verb: str, counted: Sequence[Counted]) -> str:
    """Encode sessions and a verb as a token, which `parse_token` accepts for this verb only."""
    text = json.dumps([verb, counted], separators=(",", ":"))
    return _VERSION + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def parse_token(verb: str, token: str) -> list[Counted]:
    """Return the sessions of a token. Raises InvalidDocument for one that is not of this verb.

    >>> parse_token("stop", make_token("stop", [Counted("0000aaaa", "active", 5)]))
    [Counted(session='0000aaaa', status='active', updated_ms=5)]
    """
    found = _decode(token)
    match found:
        case [str() as named, list() as rows] if named == verb:
            return [_counted(token, row) for row in rows]
        case [str() as named, list()]:
            hint = f"it is of a preview of {named}; preview {verb} and use that token"
            raise InvalidDocument("token", token[:20], hint)
        case _:
            raise _unknown(token)


def _decode(token: str) -> object:
    if not token.startswith(_VERSION) or len(token) > LONGEST:
        raise _unknown(token)
    try:
        packed = base64.b64decode(token.removeprefix(_VERSION), altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, _MOST_BYTES)
        found: object = json.loads(text) if unpacker.eof else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        raise _unknown(token) from None
    return found


def _counted(token: str, row: object) -> Counted:
    match row:
        case [str() as session, str() as status, int() as updated] if _ID.fullmatch(session):
            return Counted(session, status, updated)
        case _:
            raise _unknown(token)


def _unknown(token: str) -> InvalidDocument:
    return InvalidDocument("token", token[:20], "use the token of the preview")
