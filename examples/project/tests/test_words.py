from __future__ import annotations

from textkit.words import words


def test_words_are_in_lower_case() -> None:
    assert words("Two Words") == ["two", "words"]
