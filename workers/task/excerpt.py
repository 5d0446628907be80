"""Shortens a text that may contain secrets."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from app.redaction import without_keys
from leadhand.models.secret_forms import escaped_forms

#: Characters of a text that are redacted before it is shortened.
READ_CHARACTERS = 2_000
#: Characters that are left out before a cut; longer secrets widen it.
_OVERLAP = 128


def redacted_start(text: str, limit: int, secrets: AbstractSet[str] = frozenset()) -> str:
    """Returns the first `limit` characters of a text after redaction.

    >>> redacted_start("x" * 1_995 + "hush-hush-hush", 5_000, {"hush-hush-hush"})[-3:]
    'xxx'
    """
    clean = without_keys(text[:READ_CHARACTERS], secrets)
    if len(text) > READ_CHARACTERS:
        clean = clean[: -max([_OVERLAP, *(len(escaped_forms(one)[0]) for one in secrets)])]
    return clean[:limit]
