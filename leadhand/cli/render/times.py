"""Formats the API's times for people: as an age, or in the local time zone (pure)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

#: A time as the API writes it, in UTC.
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?\+00:00")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def age(at: str, now: datetime | None = None) -> str:
    """Formats how long ago an ISO time was, such as `1 min ago`; other text is returned as it is.

    >>> now = datetime.fromisoformat("2026-11-22T18:00:00+00:00")
    >>> age("2026-11-22T17:58:30.5+00:00", now), age("2026-11-20T17:00:00+00:00", now)
    ('1 min ago', '2 d ago')
    >>> age("2026-11-22T18:00:00.4+00:00", now), age("no time", now)
    ('now', 'no time')
    """
    then = _parse(at)
    if then is None:
        return at
    seconds = int(((now or datetime.now(UTC)) - then).total_seconds())
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "now"


def duration(seconds: float) -> str:
    """Formats seconds in the largest unit of which they are a whole number.

    >>> duration(1800.0), duration(90.0), duration(0.2), duration(86_400.0)
    ('30 min', '90 s', '0.2 s', '1 d')
    """
    for size, unit in _UNITS:
        if seconds and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def local_time(at: str) -> str:
    """Formats an ISO time in the local time zone with its age; other text is returned as it is.

    >>> local_time("no time")
    'no time'
    """
    return at if _parse(at) is None else f"{clock_time(at)} ({age(at)})"


def clock_time(at: str) -> str:
    """Formats an ISO time in the local time zone, to the second; returns other text as it is."""
    then = _parse(at)
    return at if then is None else f"{then.astimezone():%Y-%m-%d %H:%M:%S}"


def with_local_times(text: str) -> str:
    """Replaces each ISO time in a text with the same time in the local time zone.

    >>> with_local_times("until 2026-13-22T17:58:30.500+00:00 at most")
    'until 2026-13-22T17:58:30.500+00:00 at most'
    """
    return _TIME.sub(lambda found: clock_time(found[0]), text)


def _parse(at: str) -> datetime | None:
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return None
    return then if then.tzinfo is not None else then.replace(tzinfo=UTC)
