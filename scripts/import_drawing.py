"""Draws a layered import graph as an SVG file: boxes in rows, arrows from importer to imported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

Edge = tuple[str, str]

BOX_HEIGHT, ROW_HEIGHT, MARGIN, GAP = 34, 92, 24, 26
CHARACTER, PADDING, LANE = 8, 28, 18
SWEEPS = 12

_STYLE = (
    "text{font:14px sans-serif;fill:#1f2937;text-anchor:middle}"
    ".box{fill:#e8f0fe;stroke:#4a6fa5;rx:5px}.row{fill:#f6f7f9}"
    ".arrow{fill:none;stroke:#5b6472;stroke-width:1.3;marker-end:url(#head)}"
)
_HEAD = (
    '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto"><path d="M0 1L10 5L0 9z" fill="#5b6472"/></marker>'
)


class Slot(NamedTuple):
    """A place in a row: a box, or the lane of an arrow that passes the row."""

    name: str
    #: Of a lane: the arrow that it belongs to.
    edge: Edge | None = None

    @property
    def width(self) -> int:
        return LANE if self.edge else max(90, len(self.name) * CHARACTER + PADDING)


Rows = list[list[Slot]]


def transitive_reduction(edges: set[Edge]) -> set[Edge]:
    """Return the edges without those that a longer path implies; the graph has no cycles.

    >>> sorted(transitive_reduction({("a", "b"), ("b", "c"), ("a", "c")}))
    [('a', 'b'), ('b', 'c')]
    """
    following: dict[str, set[str]] = defaultdict(set)
    for source, target in edges:
        following[source].add(target)

    def reaches(start: str, target: str) -> bool:
        return any(one == target or reaches(one, target) for one in following[start])

    return {
        (source, target)
        for source, target in edges
        if not any(reaches(other, target) for other in following[source] - {target})
    }


def drawing(layers: Sequence[Sequence[str]], edges: set[Edge], title: str) -> str:
    """Return the SVG text of the boxes in these rows, the topmost first, and of all arrows."""
    chains = {edge: _chain(layers, edge) for edge in sorted(edges)}
    rows: Rows = [[Slot(name) for name in layer] for layer in layers]
    for chain in chains.values():
        for row, slot in chain[1:-1]:
            rows[row].append(slot)
    rows = _ordered(rows, chains)
    width = max(_row_width(row) for row in rows) + 2 * MARGIN
    centers = _centers(rows, width)
    height = len(rows) * ROW_HEIGHT - (ROW_HEIGHT - BOX_HEIGHT) + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style><defs>{_HEAD}</defs>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *(_band(row, width) for row in range(len(rows))),
        *(_arrow(chain, centers) for chain in chains.values()),
        *(_box(slot, row, centers) for row, slots in enumerate(rows) for slot in slots),
        "</svg>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _chain(layers: Sequence[Sequence[str]], edge: Edge) -> list[tuple[int, Slot]]:
    """Return the slots that an arrow connects: its boxes, and a lane in each row between them."""
    level = {name: row for row, layer in enumerate(layers) for name in layer}
    first, last = level[edge[0]], level[edge[1]]
    lanes = [(row, Slot(f"{edge[0]}>{edge[1]}", edge)) for row in range(first + 1, last)]
    return [(first, Slot(edge[0])), *lanes, (last, Slot(edge[1]))]


def _ordered(rows: Rows, chains: Mapping[Edge, Sequence[tuple[int, Slot]]]) -> Rows:
    """Sort each row by the places of its neighbours, which leaves few arrows that cross."""
    near: dict[tuple[int, Slot], list[tuple[int, Slot]]] = defaultdict(list)
    for chain in chains.values():
        for upper, lower in pairwise(chain):
            near[upper].append(lower)
            near[lower].append(upper)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            beside = row - 1 if down else row + 1
            places, wanted = _places(rows[beside]), _places(rows[row])
            for slot in rows[row]:
                found = [places[other] for at, other in near[(row, slot)] if at == beside]
                if found:
                    wanted[slot] = sum(found) / len(found)
            rows[row] = [slot for _, _, slot in sorted((x, s.name, s) for s, x in wanted.items())]
    return rows


def _places(row: Sequence[Slot]) -> dict[Slot, float]:
    """Return where the middle of each slot is, from the middle of its row."""
    places, x = {}, -_row_width(row) / 2
    for slot in row:
        places[slot] = x + slot.width / 2
        x += slot.width + GAP
    return places


def _row_width(row: Sequence[Slot]) -> int:
    return sum(slot.width for slot in row) + GAP * (len(row) - 1)


def _centers(rows: Rows, width: int) -> dict[tuple[int, Slot], tuple[int, int]]:
    return {
        (at, slot): (round(width / 2 + x), MARGIN + at * ROW_HEIGHT + BOX_HEIGHT // 2)
        for at, row in enumerate(rows)
        for slot, x in _places(row).items()
    }


def _band(row: int, width: int) -> str:
    y = MARGIN + row * ROW_HEIGHT - 10
    return f'<rect class="row" x="6" y="{y}" width="{width - 12}" height="{BOX_HEIGHT + 20}"/>'


def _box(slot: Slot, row: int, centers: Mapping[tuple[int, Slot], tuple[int, int]]) -> str:
    if slot.edge:
        return ""
    x, y = centers[(row, slot)]
    left, top = x - slot.width // 2, y - BOX_HEIGHT // 2
    return (
        f'<rect class="box" x="{left}" y="{top}" width="{slot.width}" height="{BOX_HEIGHT}"/>'
        f'<text x="{x}" y="{y + 5}">{escape(slot.name)}</text>'
    )


def _arrow(
    chain: Sequence[tuple[int, Slot]], centers: Mapping[tuple[int, Slot], tuple[int, int]]
) -> str:
    """Return a curve from the lower side of the first box to the upper side of the last."""
    half = BOX_HEIGHT // 2
    (x, y), *_ = points = [centers[one] for one in chain]
    path = [f"M{x} {y + half}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = (y1 + y2) // 2
        path.append(f"C{x1} {middle} {x2} {middle} {x2} {y2 - half}")
        if (x2, y2) != points[-1]:
            path.append(f"L{x2} {y2 + half}")
    return f'<path class="arrow" d="{"".join(path)}"/>'
