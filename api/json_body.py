"""Parses JSON bodies strictly: bounded depth, no duplicate names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue
from pydantic_core import from_json

from app.redaction import shortened
from leadhand.errors import Malformed, Refused

#: Maximum nesting depth, so that recursive code over documents is safe.
MAX_DEPTH = 64
#: Up to this limit every whole number is exact as a float.
_EXACT = 2.0**53
_WHERE = re.compile(r" at line (\d+) column (\d+)$")
#: The parser's error for a body that is nested too deeply.
_PARSERS_DEPTH = "recursion limit exceeded"


def parse_body(body: bytes) -> JsonValue:
    """Parses a request body as JSON. Raises Refused if invalid, too deep or with a name twice."""
    try:
        found: JsonValue = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        text = str(error)
        if text.startswith(_PARSERS_DEPTH):
            raise _too_deep() from None
        raise Malformed(_parser_words(text), hint="send one JSON object in UTF-8") from None
    whole = _make_whole(found)
    json.loads(body, object_pairs_hook=_once_each, parse_int=str, parse_float=str)
    return whole


def _make_whole(given: JsonValue) -> JsonValue:
    """Converts whole floats to integers in place: in JSON, 3 and 3.0 are the same number.

    It goes through the value level by level, which a deep value makes no slower. Raises Refused if
    it is too deep.

    >>> _make_whole({"a": [3.0, 3.5, "3.0", True]})
    {'a': [3, 3.5, '3.0', True]}
    """
    around: list[JsonValue] = [given]
    level: list[JsonValue] = [around]
    for _ in range(MAX_DEPTH + 1):
        level = [part for one in level for part in _mend_numbers(one)]
    if level:
        raise _too_deep()
    return around[0]


def _mend_numbers(value: JsonValue) -> list[JsonValue]:
    """Converts the whole floats in a list or an object; returns the lists and objects in it."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            if isinstance(one, float) and one.is_integer() and abs(one) < _EXACT:
                value[number] = int(one)
        return [one for one in value if isinstance(one, list | dict)]
    assert isinstance(value, dict)
    for name, one in value.items():
        if isinstance(one, float) and one.is_integer() and abs(one) < _EXACT:
            value[name] = int(one)
    return [one for one in value.values() if isinstance(one, list | dict)]


def _once_each(pairs: Sequence[tuple[str, object]]) -> None:
    """Refuse duplicate names in an object. Raises Refused."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise Malformed(
                f"the body gives {shortened(name)} twice in one object",
                field=name[:80],
                hint="give each name once",
            )
        seen.add(name)


def _too_deep() -> Refused:
    return Malformed(
        f"the body is nested deeper than {MAX_DEPTH} levels",
        hint=f"nest lists and objects at most {MAX_DEPTH} levels deep",
    )


def _parser_words(text: str) -> str:
    """Formats the parser's error with the position first.

    >>> _parser_words("expected value at line 1 column 7")
    'the body is no JSON: line 1, column 7: expected value'
    """
    found = _WHERE.search(text)
    if found is None:
        return f"the body is no JSON: {text}"
    line, column = found.groups()
    return f"the body is no JSON: line {line}, column {column}: {text[: found.start()]}"
