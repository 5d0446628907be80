"""Names of folder locks: which folders lie above or below another one (pure)."""

from __future__ import annotations

from collections.abc import Iterator

_KIND = "folder:"


def is_folder(lock: str) -> bool:
    """Whether the name of a lock is that of a folder lock: it begins with `folder:`."""
    return lock.startswith(_KIND)


def lies_below(inner: str, outer: str) -> bool:
    """Whether the folder of one lock is inside that of another, at the same place; not if equal.

    >>> lies_below("folder:here:/runs/sub", "folder:here:/runs")
    True
    >>> lies_below("folder:here:/runs2", "folder:here:/runs")
    False
    """
    return inner != outer and inner.startswith(prefix_below(outer))


def prefix_below(lock: str) -> str:
    """Returns the prefix of the lock names of all folders inside a folder, by its lock name.

    >>> prefix_below("folder:here:/runs"), prefix_below("folder:here:/")
    ('folder:here:/runs/', 'folder:here:/')
    """
    return lock if lock.endswith("/") else f"{lock}/"


def folders_above(lock: str) -> Iterator[str]:
    """Yields the lock names of all folders that contain a lock's folder, the outermost first.

    >>> list(folders_above("folder:here:/a/b"))
    ['folder:here:/', 'folder:here:/a']
    """
    place, _, path = lock.removeprefix(_KIND).partition(":")
    parts = path.strip("/").split("/") if path.strip("/") else []
    for depth in range(len(parts)):
        yield f"{_KIND}{place}:/{'/'.join(parts[:depth])}"
