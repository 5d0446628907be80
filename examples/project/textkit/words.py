"""Words of a text."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return text.lower().split()
