"""Parses the error of a reference that had no value (pure)."""

from __future__ import annotations

import re

_NO_VALUE = re.compile(r"(?P<reference>\$\{.*?\}) has no value: ")


def missing_reference(error: str) -> str | None:
    """Returns the reference that had no value, as it is written; None for another error.

    >>> missing_reference("${a.b} has no value: it has no 'b'"), missing_reference("no such page")
    ('${a.b}', None)
    """
    found = _NO_VALUE.match(error)
    return None if found is None else found["reference"]
