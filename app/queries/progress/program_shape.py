"""The nodes of a program as they are drawn (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.domain.program import Loop, Node, Program, needs_of, transitive_needs
from leadhand.drawing.shape import Block, Drawn, Mark
from leadhand.drawing.shape import shape_of as arrange

#: Nodes of a block whose branches are drawn side by side; each is compared with all others.
_MOST = 100


def shape_of(program: Program, marks: Mapping[str, Mark]) -> Block:
    """Arranges a program's nodes in layers for a drawing; `marks` has their states by path."""
    return arrange(_drawn(program.body), marks)


def _drawn(block: tuple[Node, ...]) -> tuple[Drawn, ...]:
    needs = drawn_needs(block)
    return tuple(
        Drawn(
            node.id,
            node.label or node.id,
            needs[node.id],
            _drawn(node.body) if isinstance(node, Loop) else (),
        )
        for node in block
    )


def drawn_needs(block: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    """Returns the edges to each node of a block as they are drawn: branches side by side.

    A program runs the branches of a decision one after the other and skips those that were not
    chosen. They are drawn beside each other, and what comes after them follows each of them, or the
    decision if it has no other branch.
    """
    needs, chosen = needs_of(block), _choices(block)
    if len(block) > _MOST or not any(chosen.values()):
        return needs
    before = transitive_needs(block)
    drawn: dict[str, tuple[str, ...]] = {}
    above: dict[str, frozenset[str]] = {}
    for name in sorted(needs, key=lambda one: len(before[one])):
        earlier = [one for one in needs if one in before[name] and not _conflict(chosen, one, name)]
        last = [one for one in earlier if not any(one in above[other] for other in earlier)]
        passed = _passed_by(chosen, name, last)
        drawn[name] = tuple(dict.fromkeys([*last, *passed]))
        above[name] = frozenset(earlier)
    return drawn


def _choices(block: tuple[Node, ...]) -> dict[str, dict[str, str]]:
    """The decisions that each node depends on, also through others, with the needed verdicts."""
    given = {node.id: node.given for node in block}
    found: dict[str, dict[str, str]] = {}
    for node in block:
        one, chosen = node.given, dict[str, str]()
        while one is not None:
            chosen[one.node] = one.verdict
            one = given[one.node]
        found[node.id] = chosen
    return found


def _conflict(chosen: Mapping[str, Mapping[str, str]], one: str, other: str) -> bool:
    """Whether two nodes are in different branches of a decision."""
    mine = chosen[one]
    return any(node in mine and mine[node] != verdict for node, verdict in chosen[other].items())


def _passed_by(
    chosen: Mapping[str, Mapping[str, str]], name: str, last: Sequence[str]
) -> list[str]:
    """The decisions without a branch for their other answer, which leads to this node at once."""
    left = [
        (node, verdict)
        for one in last
        for node, verdict in chosen[one].items()
        if node not in chosen[name]
    ]
    return [
        node
        for node, verdict in left
        if not any(chosen[one].get(node, verdict) != verdict for one in last)
    ]
