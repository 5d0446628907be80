"""Reads the JSON of a body: strictly, to a bounded depth, and each name once."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue
from pydantic_core import from_json

from api.fields import shortened
from api.refusals import Refused, malformed

#: How deep lists and objects may lie in each other. No document of ours comes near it, and
#: whatever walks over a document may do so by calling itself.
MAX_DEPTH = 64
#: Beyond it not every whole number is a float.
_EXACT = 2.0**53
_WHERE = re.compile(r" at line (\d+) column (\d+)$")
#: What the parser says of what is deeper than it goes itself.
_PARSERS_DEPTH = "recursion limit exceeded"


def parsed(text: bytes) -> JsonValue:
    """What the text says. Raises Refused."""
    try:
        found: JsonValue = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        said = str(error)
        if said.startswith(_PARSERS_DEPTH):
            raise _too_deep() from None
        raise malformed(_parser_words(said), hint="send one JSON object in UTF-8") from None
    whole = _whole(found, 0)
    json.loads(text, object_pairs_hook=_once_each, parse_int=str, parse_float=str)
    return whole


def _whole(value: JsonValue, depth: int) -> JsonValue:
    """The same with 3 for 3.0: JSON has one kind of number, and both are the same one.

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
    """Of two values under one name nobody can tell which one was meant. Raises Refused."""
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
        hint=f"let lists and objects lie at most {MAX_DEPTH} deep in each other",
    )


def _parser_words(text: str) -> str:
    """What the parser says, with the place first.

    >>> _parser_words("expected value at line 1 column 7")
    'the body is no JSON: line 1, column 7: expected value'
    """
    found = _WHERE.search(text)
    if found is None:
        return f"the body is no JSON: {text}"
    line, column = found.groups()
    return f"the body is no JSON: line {line}, column {column}: {text[: found.start()]}"
