"""Ids, addresses of steps and turns, and times as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

#: Addresses of which the parts are kept: those of the steps that a process has at work.
_KEPT = 1024
_DECORATION = re.compile(r"~\d+|\[\d+\]|#\d+")
_LAST_ITERATION = re.compile(r"\[(\d+)\]$")


@lru_cache(maxsize=_KEPT)
def path_of(address: str) -> str:
    """Strips runs, iterations and items from an address: `loop~1[3]/ask` becomes `loop/ask`.

    >>> path_of("outer~1[1]/inner~1[3]/ask")
    'outer/inner/ask'
    >>> path_of("fetch~1#17")
    'fetch'
    """
    return _DECORATION.sub("", address)


def by_number(address: str) -> list[tuple[int, str]]:
    """Returns a sort key for addresses, by which iteration 10 comes after iteration 9.

    >>> sorted(["a~1[10]/x", "a~1[9]/x"], key=by_number)
    ['a~1[9]/x', 'a~1[10]/x']
    """
    parts = re.findall(r"\d+|\D+", address)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


@lru_cache(maxsize=_KEPT)
def block_of(address: str) -> str:
    """Returns an address up to its last step: `loop~1[3]` of `loop~1[3]/ask`; '' at the top.

    >>> block_of("green~1[2]/check.lint")
    'green~1[2]'
    >>> block_of("fetch~1#17")
    'fetch~1'
    """
    if "#" in address.rpartition("/")[2]:
        return address.rpartition("#")[0]
    return address.rpartition("/")[0]


def within(block: str, name: str) -> str:
    """Returns the address of a node, `block/name`; the name alone in the outermost block ('')."""
    return f"{block}/{name}" if block else name


@lru_cache(maxsize=_KEPT)
def turn_of(block: str) -> str:
    """Strips the last iteration number from a block's address: `loop~1[3]` becomes `loop~1`.

    >>> turn_of("green~1[2]"), turn_of("fetch~1")
    ('green~1', 'fetch~1')
    """
    return _LAST_ITERATION.sub("", block)


def iteration_in(block: str) -> int:
    """Returns the iteration number that ends a block's address: 3 in `loop~1[3]`; 0 if none.

    >>> iteration_in("green~1[2]"), iteration_in("")
    (2, 0)
    """
    match = _LAST_ITERATION.search(block)
    return int(match.group(1)) if match else 0


@lru_cache(maxsize=_KEPT)
def iteration_of(address: str) -> int:
    """Returns the iteration of the innermost loop around a step; 1 outside loops.

    >>> iteration_of("green~1[2]/check.lint")
    2
    """
    match = _LAST_ITERATION.search(block_of(address.partition("#")[0]))
    return int(match.group(1)) if match else 1


class SessionRef(NamedTuple):
    """A session and the root of its tree; together they give its Redis keys."""

    id: str
    root: str

    @property
    def member(self) -> str:
        """The prefix `id|root|` of the session's entries in sorted sets that all sessions share."""
        return f"{self.id}|{self.root}|"


def lock_name(name: str) -> str:
    """Escapes the name of a lock, since `<` separates the name from the holder.

    >>> lock_name("folder:here:/a<b")
    'folder:here:/a%3Cb'
    """
    return name.replace("<", "%3C")


def name_of_lock(lock: str) -> str:
    """Unescapes the name of a lock: the inverse of `lock_name`.

    >>> name_of_lock(lock_name("key:a<b"))
    'key:a<b'
    """
    return lock.replace("%3C", "<")


def iso(at_ms: int) -> str:
    """Formats a time in ms as ISO 8601 in UTC.

    >>> iso(0)
    '1970-01-01T00:00:00.000+00:00'
    """
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
