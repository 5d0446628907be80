"""Entity tags of what can be changed: what somebody saw of a session or of a limit."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_TAG = re.compile(r'(?:W/)?"([a-z]{1,20})-([0-9]{1,15})(?:-[0-9a-f]{1,64})?"')
_LIMIT = re.compile(r'(?:W/)?"([0-9]{0,6})-([0-9.e-]{0,24})"')


def etag(status: str, updated_at: str, shown: str = "") -> str:
    """The weak tag of a session; a digest of all that is shown of it may be added.

    What is shown may change by itself, as when the session's place loses its last worker. Only
    the status and the time matter to whoever means to change the session.

    >>> etag("active", "2026-11-21T12:00:00.500+00:00")
    'W/"active-1795262400500"'
    >>> etag("active", "2026-11-21T12:00:00.500+00:00", "5f1d")
    'W/"active-1795262400500-5f1d"'
    """
    at = datetime.fromisoformat(updated_at).astimezone(UTC)
    more = f"-{shown}" if shown else ""
    return f'W/"{status}-{round(at.timestamp() * 1000)}{more}"'


def seen_in(tag: str) -> tuple[str, int] | None:
    """The status and the time in ms that a tag holds; None for one that is not ours.

    >>> seen_in('W/"active-1795262400500-5f1d"')
    ('active', 1795262400500)
    """
    found = _TAG.fullmatch(tag.strip())
    return (found[1], int(found[2])) if found else None


def limit_etag(concurrency: int | None, per_minute: float | None) -> str:
    """The tag of a limit.

    >>> limit_etag(4, None), limit_etag(None, 30)
    ('"4-"', '"-30.0"')
    """
    at_once = "" if concurrency is None else str(concurrency)
    begin = "" if per_minute is None else repr(float(per_minute))
    return f'"{at_once}-{begin}"'


def limit_seen_in(tag: str) -> tuple[int | None, float | None] | None:
    """The limit that a tag is of; None for one that is not ours.

    >>> limit_seen_in('"4-0.5"'), limit_seen_in('"4"')
    ((4, 0.5), None)
    """
    found = _LIMIT.fullmatch(tag.strip())
    if found is None:
        return None
    try:
        return int(found[1]) if found[1] else None, float(found[2]) if found[2] else None
    except ValueError:
        return None
