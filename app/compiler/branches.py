"""Lets the nodes of a branch start beside those of other branches of the same block (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.program import Node


def start_beside(nodes: Sequence[Node], before: tuple[str, ...]) -> list[Node]:
    """Makes a branch of nodes start in parallel: its first ones wait only for the nodes `before`.

    A node without `needs` waits for the one before it, which is in another branch for the first.
    """
    ids = {node.id for node in nodes}
    placed = list[Node]()
    for number, node in enumerate(nodes):
        needs = node.needs
        if needs is None:
            needs = before if number == 0 else (nodes[number - 1].id,)
        elif not ids.issuperset(needs):
            needs = before
        placed.append(node.model_copy(update={"needs": needs}))
    return placed
