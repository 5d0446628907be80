"""The shape of a drawing: layers of nodes, nested blocks, and what is collapsed (pure).

A block is drawn in layers: a node is one layer below the last node that it needs, so nodes of one
layer may run side by side. Large blocks are collapsed: the boxes of a drawing are bounded, however
many steps there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

#: Boxes of one layer, and layers of one block; more are collapsed into one box.
WIDE, DEEP = 6, 40
#: Loops in loops that are drawn with what is in them.
NESTED = 4
#: The order in which the states of collapsed nodes are listed.
STATES = (
    "running", "parked", "ready", "failed", "retry", "succeeded", "skipped", "cancelled", "pending",
)  # fmt: skip


class Drawn(NamedTuple):
    """A node to draw: a step, or a loop with its block."""

    id: str
    label: str
    #: The nodes of its block that it waits for.
    needs: tuple[str, ...] = ()
    #: Of a loop.
    body: tuple[Drawn, ...] = ()


class Mark(NamedTuple):
    """What became of a node."""

    state: str = "pending"
    #: Such as the iterations of a loop, or the answer of a decision.
    note: str = ""
    #: Why it was skipped or failed.
    why: str = ""
    #: What happened before: earlier runs, and the iterations around it.
    before: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Return the state, and the reason if there is one."""
        if self.why.startswith(self.state):
            return self.why
        return f"{self.state}: {self.why}" if self.why else self.state


#: A node that has not started.
PENDING = Mark()

#: The sign of each state.
SIGNS = {
    "pending": "\N{MIDDLE DOT}",
    "ready": "\N{WHITE CIRCLE}",
    "running": "\N{BLACK CIRCLE}",
    "parked": "\N{CIRCLE WITH LEFT HALF BLACK}",
    "succeeded": "\N{CHECK MARK}",
    "retry": "\N{ANTICLOCKWISE OPEN CIRCLE ARROW}",
    "failed": "\N{BALLOT X}",
    "skipped": "\N{EN DASH}",
    "cancelled": "\N{EN DASH}",
}
#: The states of nodes that others went on from, and of nodes that were reached.
_LEFT = frozenset({"succeeded", "retry", "failed"})
_REACHED = _LEFT | {"ready", "running", "parked"}


@dataclass(frozen=True)
class Cell:
    """One box: a step, a loop with its block, or several collapsed nodes."""

    #: The path of the node; of collapsed ones, that of the first.
    path: str
    label: str
    mark: Mark = PENDING
    #: The block of a loop; None for a step.
    block: Block | None = None
    #: The paths of the nodes that it shows.
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """Layers of cells, and the edges between cells by their paths."""

    layers: tuple[tuple[Cell, ...], ...]
    edges: tuple[tuple[str, str], ...]
    #: The edges that the session has taken.
    taken: frozenset[tuple[str, str]] = frozenset()


def shape_of(nodes: tuple[Drawn, ...], marks: Mapping[str, Mark]) -> Block:
    """Arranges nodes in layers for a drawing; `marks` has their states by path."""
    return _block(nodes, "", marks, NESTED)


def _block(nodes: tuple[Drawn, ...], prefix: str, marks: Mapping[str, Mark], deep: int) -> Block:
    needs = {node.id: node.needs for node in nodes}
    layers = _layers(nodes, needs)
    cells = [[_cell(node, prefix, marks, deep) for node in layer] for layer in layers]
    cells = _collapse_deep([_collapse_wide(layer) for layer in cells])
    home = {member: cell.path for layer in cells for cell in layer for member in cell.members}
    edges: dict[tuple[str, str], None] = {}
    for name, wanted in needs.items():
        for need in wanted:
            edge = (home[prefix + need], home[prefix + name])
            if edge[0] != edge[1]:
                edges[edge] = None
    states = {cell.path: cell.mark.state for layer in cells for cell in layer}
    taken = (e for e in edges if states[e[0]] in _LEFT and states[e[1]] in _REACHED)
    return Block(tuple(tuple(layer) for layer in cells), tuple(edges), frozenset(taken))


def _layers(nodes: tuple[Drawn, ...], needs: Mapping[str, tuple[str, ...]]) -> list[list[Drawn]]:
    level: dict[str, int] = {}
    left = list(nodes)
    while left:
        later = []
        for node in left:
            if all(need in level for need in needs[node.id]):
                level[node.id] = 1 + max((level[need] for need in needs[node.id]), default=-1)
            else:
                later.append(node)
        left = later
    layers: list[list[Drawn]] = [[] for _ in range(1 + max(level.values()))]
    for node in nodes:
        layers[level[node.id]].append(node)
    return layers


def _cell(node: Drawn, prefix: str, marks: Mapping[str, Mark], deep: int) -> Cell:
    path = prefix + node.id
    inside = node.body and deep > 0
    return Cell(
        path=path,
        label=node.label,
        mark=marks.get(path, PENDING),
        block=_block(node.body, f"{path}/", marks, deep - 1) if inside else None,
        members=(path,),
    )


def _collapse_wide(layer: list[Cell]) -> list[Cell]:
    if len(layer) <= WIDE:
        return layer
    return [*layer[: WIDE - 1], _collapsed(layer[WIDE - 1 :])]


def _collapse_deep(layers: list[list[Cell]]) -> list[list[Cell]]:
    if len(layers) <= DEEP:
        return layers
    first = DEEP // 2
    middle = [cell for layer in layers[first : first - DEEP + 1] for cell in layer]
    return [*layers[:first], [_collapsed(middle)], *layers[first - DEEP + 1 :]]


def _collapsed(cells: list[Cell]) -> Cell:
    """One cell for several, with how many are in each state; it is in the first state of these."""
    members = tuple(member for cell in cells for member in cell.members)
    counts = Counter(cell.mark.state for cell in cells for _ in cell.members)
    listed = [state for state in STATES if counts[state]]
    note = ", ".join(f"{counts[state]} {state}" for state in listed)
    state = listed[0] if listed else "pending"
    first = replace(cells[0], members=members, block=None, mark=Mark(state, note))
    return replace(first, label=f"{len(members)} steps, from {cells[0].label} on")
