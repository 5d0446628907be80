"""Orders nodes by their needs; finds those that can never start, as they need each other (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

#: The most nodes of a cycle that an error shows.
_SHOWN = 20


def in_order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """Returns each node after those that it needs; none that a cycle blocks (Kahn's algorithm).

    >>> in_order({"c": ("a", "b"), "b": ("a",), "a": (), "d": ("d",)})
    ['a', 'b', 'c']
    """
    left = {name: len(wanted) for name, wanted in needs.items()}
    followers: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            followers[need].append(name)
    order = [name for name, count in left.items() if not count]
    for done in order:  # it grows
        for name in followers[done]:
            left[name] -= 1
            if not left[name]:
                order.append(name)
    return order


def find_blocked(needs: Mapping[str, Collection[str]]) -> set[str]:
    """Returns the nodes of cycles and all nodes that depend on them.

    >>> sorted(find_blocked({"a": (), "b": ("c",), "c": ("b",), "d": ("a", "b")}))
    ['b', 'c', 'd']
    """
    return needs.keys() - in_order(needs)


def find_cycles(needs: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """Yields a shortest cycle of each set of nodes that need each other, in the order of `needs`.

    It takes time in proportion to the needs, however many cycles they have.

    >>> list(find_cycles({"a": ("b",), "b": ("a", "c"), "c": ("d",), "d": ("c",), "e": ("a",)}))
    [['a', 'b'], ['c', 'd']]
    """
    blocked = find_blocked(needs)
    groups = _groups({name: [n for n in needs[name] if n in blocked] for name in blocked})
    for name in needs:
        group = groups.get(name, set())
        if len(group) > 1 or name in needs[name]:
            yield _shortest(name, needs, group)
            for member in group:
                del groups[member]


def show_cycle(names: Sequence[str]) -> str:
    """Formats a cycle for an error; the middle of a long one is left out.

    >>> show_cycle(["a", "b"])
    'a -> b -> a'
    """
    left = len(names) - _SHOWN
    middle = [f"({left} more)"] if left > 0 else []
    return " -> ".join([*names[:_SHOWN], *middle, names[0]])


def _groups(needs: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """The set of nodes that need each other, by each of its nodes (Kosaraju's algorithm)."""
    needed_by: dict[str, list[str]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            needed_by[need].append(name)
    seen, groups = set[str](), dict[str, set[str]]()
    order = [one for name in needs for one in _walk(name, needs, seen)]
    seen = set()
    for name in reversed(order):
        group = set(_walk(name, needed_by, seen))
        groups.update(dict.fromkeys(group, group))
    return groups


def _walk(start: str, edges: Mapping[str, Collection[str]], seen: set[str]) -> Iterator[str]:
    """Yields the unseen nodes that are reached, each after all that are reached from it."""
    if start in seen:
        return
    seen.add(start)
    path = [(start, iter(edges[start]))]
    while path:
        name, left = path[-1]
        following = next((one for one in left if one not in seen), None)
        if following is None:
            path.pop()
            yield name
        else:
            seen.add(following)
            path.append((following, iter(edges[following])))


def _shortest(start: str, needs: Mapping[str, Collection[str]], group: set[str]) -> list[str]:
    """A shortest cycle from a node through the nodes of its group."""
    came_from: dict[str, str] = {}
    level = [start]
    while start not in came_from:
        following: list[str] = []
        for name in level:
            for need in needs[name]:
                if need in group and need not in came_from:
                    came_from[need] = name
                    following.append(need)
        level = following
    cycle = [came_from[start]]
    while cycle[-1] != start:
        cycle.append(came_from[cycle[-1]])
    return cycle[::-1]
