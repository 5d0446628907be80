"""Paths into JSON objects: ``result``, ``usage.input_tokens``, ``[type=result].result``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, NamedTuple

from pydantic import Field, JsonValue

_NAME = r"[A-Za-z0-9_-]+"
_TEST = rf"\[{_NAME}\^?=[^\[\]]*\]"
_SEGMENT = rf"(?:{_NAME}(?:{_TEST})*|(?:{_TEST})+)"
#: Names with dots between them. ``[NAME=VALUE]`` after a name, or at the start, matches only an
#: object that has this field with this value, ``[NAME^=VALUE]`` one whose field begins with it.
FieldPath = Annotated[str, Field(pattern=rf"^{_SEGMENT}(?:\.{_SEGMENT})*$", max_length=300)]

_SEGMENTS = re.compile(rf"({_NAME})?((?:{_TEST})*)(?:\.|$)")
_TESTS = re.compile(rf"\[({_NAME})(\^?=)([^\[\]]*)\]")


class _Segment(NamedTuple):
    name: str
    tests: tuple[tuple[str, str, str], ...]


def find(path: str, value: JsonValue) -> JsonValue:
    """Returns the value at a path in JSON; None if there is none or a condition does not match.

    >>> event = {"type": "done", "usage": {"tokens": 7}}
    >>> find("[type=done].usage.tokens", event), find("[type=begun].usage.tokens", event)
    (7, None)
    >>> find("[type^=do].usage.tokens", event), find("[type^=on].usage.tokens", event)
    (7, None)
    """
    for segment in _segments(path):
        if segment.name:
            value = value.get(segment.name) if isinstance(value, dict) else None
        if not _holds(segment.tests, value):
            return None
    return value


@lru_cache(maxsize=512)
def _segments(path: str) -> tuple[_Segment, ...]:
    return tuple(_split(path))


def _split(path: str) -> Iterator[_Segment]:
    for match in _SEGMENTS.finditer(path):
        if match.group():
            yield _Segment(match.group(1) or "", tuple(_TESTS.findall(match.group(2))))


def _holds(tests: tuple[tuple[str, str, str], ...], value: JsonValue) -> bool:
    if not tests:
        return True
    return isinstance(value, dict) and all(
        _fits(_word(value.get(name)), sign, word) for name, sign, word in tests
    )


def _fits(found: str | None, sign: str, word: str) -> bool:
    return found is not None and (found.startswith(word) if sign == "^=" else found == word)


def _word(value: JsonValue) -> str | None:
    """A scalar as TOML writes it; None for a list or an object.

    >>> _word(True), _word("x"), _word(3), _word([])
    ('true', 'x', '3', None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None
