"""The forms that short texts must have, each with the words that tell a person of it."""

from __future__ import annotations

#: What an agent, a flow, a place or a key is called.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
#: What an input of a flow, and a variable, is called.
INPUT = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
#: Which of an agent's conversations is meant.
IDENTIFIER = r"^[^|<\x00-\x1f]{1,64}$"
FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"

_WORDS = {
    NAME: "1 to 64 letters, digits, '_', '.' and '-', with a letter or digit first",
    INPUT: "1 to 64 letters, digits and '_', with no digit first",
    VARIABLE: "letters, digits and '_', with no digit first",
    IDENTIFIER: "1 to 64 characters without '|', '<' and line breaks",
    FUNCTION: "'module:function'",
}


def form_of(pattern: object) -> str | None:
    """What a text of this pattern is, in words; None where there are none for it.

    >>> form_of(NAME)
    "1 to 64 letters, digits, '_', '.' and '-', with a letter or digit first"
    """
    return _WORDS.get(str(pattern))
