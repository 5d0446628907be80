"""Identifiers of sessions and locks."""

from __future__ import annotations

from typing import NamedTuple


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
