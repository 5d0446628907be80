"""The weak entity tag of a session: what somebody saw of it, for when it is to be changed."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_TAG = re.compile(r'(?:W/)?"([a-z]{1,20})-([0-9]{1,15})"')


def etag(status: str, updated_at: str) -> str:
    """The tag of what is shown of a session.

    >>> etag("active", "2026-11-21T12:00:00.500+00:00")
    'W/"active-1795262400500"'
    """
    at = datetime.fromisoformat(updated_at).astimezone(UTC)
    return f'W/"{status}-{round(at.timestamp() * 1000)}"'


def seen_in(tag: str) -> tuple[str, int] | None:
    """The status and the time in ms that a tag holds; None for one that is not ours.

    >>> seen_in('W/"active-1795262400500"')
    ('active', 1795262400500)
    """
    found = _TAG.fullmatch(tag.strip())
    return (found[1], int(found[2])) if found else None
