"""Entity tags of sessions, plans and limits, for conditional requests."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_TAG = re.compile(r'(?:W/)?"([a-z]{1,20})-([0-9]{1,15})(?:-[0-9a-f]{1,64})?"')
_PLAN = re.compile(r'"plan-([0-9]{1,15})"')
_LIMIT = re.compile(r'(?:W/)?"([0-9]{0,6})-([0-9.e-]{0,24})"')


def etag(status: str, updated_at: str, shown: str = "") -> str:
    """Returns the weak ETag of a session; a digest of its view may be added.

    A view may change without the session, as when the session's place loses its last worker. Only
    the status and the time matter for a conditional change.

    >>> etag("active", "2026-11-21T12:00:00.500+00:00")
    'W/"active-1795262400500"'
    >>> etag("active", "2026-11-21T12:00:00.500+00:00", "5f1d")
    'W/"active-1795262400500-5f1d"'
    """
    at = datetime.fromisoformat(updated_at).astimezone(UTC)
    more = f"-{shown}" if shown else ""
    return f'W/"{status}-{round(at.timestamp() * 1000)}{more}"'


def parse_etag(tag: str) -> tuple[str, int] | None:
    """Parses a session's ETag to its status and time in ms; None if it is not one.

    >>> parse_etag('W/"active-1795262400500-5f1d"')
    ('active', 1795262400500)
    """
    found = _TAG.fullmatch(tag.strip())
    return (found[1], int(found[2])) if found else None


def plan_etag(version: int) -> str:
    """Returns the strong ETag of a version of a plan.

    >>> plan_etag(7)
    '"plan-7"'
    """
    return f'"plan-{version}"'


def parse_plan_etag(tag: str) -> int | None:
    """Parses a plan's ETag to its version; None if it is not one.

    >>> parse_plan_etag('"plan-7"'), parse_plan_etag('W/"plan-7"')
    (7, None)
    """
    found = _PLAN.fullmatch(tag.strip())
    return int(found[1]) if found else None


def limit_etag(concurrency: int | None, per_minute: float | None) -> str:
    """Returns the ETag of a named limit.

    >>> limit_etag(4, None), limit_etag(None, 30)
    ('"4-"', '"-30.0"')
    """
    at_once = "" if concurrency is None else str(concurrency)
    begin = "" if per_minute is None else repr(float(per_minute))
    return f'"{at_once}-{begin}"'


def parse_limit_etag(tag: str) -> tuple[int | None, float | None] | None:
    """Parses a limit's ETag to its concurrency and rate per minute; None if it is not one.

    >>> parse_limit_etag('"4-0.5"'), parse_limit_etag('"4"')
    ((4, 0.5), None)
    """
    found = _LIMIT.fullmatch(tag.strip())
    if found is None:
        return None
    try:
        return int(found[1]) if found[1] else None, float(found[2]) if found[2] else None
    except ValueError:
        return None
