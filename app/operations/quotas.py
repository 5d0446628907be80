"""The quotas of API tokens, as the create transition checks them."""

from __future__ import annotations

from pydantic import JsonValue

from app.security.api_tokens import DAY_MS, Owner
from leadhand.errors import QuotaPassed


def owner_argument(owner: Owner | None, size: int) -> dict[str, JsonValue] | None:
    """Converts an owner with quotas to an argument of the Lua function `create`; None for None."""
    if owner is None:
        return None
    quotas = owner.quotas
    return {
        "token": owner.token,
        "sessions": quotas.max_sessions,
        "steps": quotas.steps_per_day,
        "bytes": quotas.bytes_per_day,
        "size": size,
    }


def quota_error(owner: Owner, what: str, now_ms: int) -> QuotaPassed:
    """Builds the error for a used-up quota, with the seconds until a daily quota starts again."""
    quotas = owner.quotas
    if what == "sessions":
        return QuotaPassed(what, quotas.max_sessions or 0)
    limit = quotas.steps_per_day if what == "steps" else quotas.bytes_per_day
    return QuotaPassed(what, limit or 0, retry_after_s=-(-(DAY_MS - now_ms % DAY_MS) // 1000))
