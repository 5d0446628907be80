"""Turns a refused create transition into the error that the caller gets."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.records import Reply
from app.domain.tree_limits import TreeLimitReached
from app.errors import LabelTaken, ParentRests, QuotaPassed
from app.security.api_tokens import DAY_MS, Owner


def create_error(
    answer: Reply, label: str, parent: Mapping[str, JsonValue] | None
) -> LabelTaken | ParentRests | TreeLimitReached:
    """The error for the reply with which the create transition refuses a session."""
    if answer.word == "tree_limit" and parent is not None:
        return TreeLimitReached(str(answer.why), answer.limit or 0, str(parent["session"]))
    if answer.word == "label_taken":
        return LabelTaken(label, str(answer.session))
    return ParentRests(str(parent))


def quota_error(owner: Owner, what: str, now_ms: int) -> QuotaPassed:
    """The error for a quota that is used up; a daily one says when to try again."""
    quotas = owner.quotas
    if what == "sessions":
        return QuotaPassed(what, quotas.max_sessions or 0)
    limit = quotas.steps_per_day if what == "steps" else quotas.bytes_per_day
    return QuotaPassed(what, limit or 0, retry_after_s=-(-(DAY_MS - now_ms % DAY_MS) // 1000))
