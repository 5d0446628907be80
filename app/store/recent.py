"""A bounded memory of the entries that were used last; safe for threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps the entries that were used last, and forgets the others.

    >>> recent = Recent[str, int](2)
    >>> recent["a"], recent["b"] = 1, 2
    >>> recent.get("a")
    1
    >>> recent["c"] = 3
    >>> recent.get("b") is None
    True
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries = OrderedDict[K, V]()
        self._changing = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the entry of a key and mark it as used last; None if there is none."""
        with self._changing:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        with self._changing:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
