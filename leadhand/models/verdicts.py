"""The three words of a verdict."""

from __future__ import annotations

from typing import Literal

VerdictWord = Literal["accept", "retry", "terminate"]

_WORDS: tuple[VerdictWord, ...] = ("terminate", "retry", "accept")


def verdict_word(text: object) -> VerdictWord | None:
    """Returns the verdict that a text names, ignoring upper and lower case; None for other text.

    >>> verdict_word(" Accept "), verdict_word("accepted")
    ('accept', None)
    """
    word = text.strip().lower() if isinstance(text, str) else None
    return next((one for one in _WORDS if one == word), None)
