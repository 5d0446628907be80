"""Finds nodes that can never start because they need each other (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def find_blocked(needs: Mapping[str, Collection[str]]) -> set[str]:
    """Returns the nodes of cycles and all nodes that depend on them (Kahn's algorithm).

    >>> sorted(find_blocked({"a": (), "b": ("c",), "c": ("b",), "d": ("a", "b")}))
    ['b', 'c', 'd']
    """
    left = {name: len(wanted) for name, wanted in needs.items()}
    followers: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            followers[need].append(name)
    free = [name for name, count in left.items() if not count]
    while free:
        done = free.pop()
        del left[done]
        for name in followers[done]:
            left[name] -= 1
            if not left[name]:
                free.append(name)
    return set(left)
