"""Parses JSON bodies strictly: bounded depth, no duplicate names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue
from pydantic_core import from_json

from api.problem_types import Refused, malformed
from api.validation_errors import shortened

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
        raise malformed(_parser_words(text), hint="send one JSON object in UTF-8") from None
    whole = _whole(found, 0)
    json.loads(body, object_pairs_hook=_once_each, parse_int=str, parse_float=str)
    return whole


def _whole(value: JsonValue, depth: int) -> JsonValue:
    """Converts whole floats to integers: in JSON, 3 and 3.0 are the same number.

    >>> _whole({"a": [3.0, 3.5, "3.0", True]}, 0)
    {'a': [3, 3.5, '3.0', True]}
    """
    match value:
        case float() if value.is_integer() and abs(value) < _EXACT:
            return int(value)
        case list() | dict() if depth == MAX_DEPTH:
            raise _too_deep()
        case list():
            return [_whole(one, depth + 1) for one in value]
        case dict():
            return {name: _whole(one, depth + 1) for name, one in value.items()}
        case _:
            return value


def _once_each(pairs: Sequence[tuple[str, object]]) -> None:
    """Refuse duplicate names in an object. Raises Refused."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise malformed(
                f"the body gives {shortened(name)} twice in one object",
                field=name[:80],
                hint="give each name once",
            )
        seen.add(name)


def _too_deep() -> Refused:
    return malformed(
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
