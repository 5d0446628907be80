"""Places the cells of a shape: boxes that do not overlap, in units of pixels (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leadhand.drawing.shape import Block, Cell

#: Width of a step's box, heights of a box and of a loop's title, and the space between.
WIDTH, HEIGHT, TITLE, GAP_X, GAP_Y, PAD = 168, 46, 40, 24, 34, 16
#: Height of a line of a note, average width of its characters, and the most room for one.
LINE, NOTE_CHARACTER, NOTE_WIDTH = 16, 6, 480
#: Free space on the right of a block, for edges that pass boxes.
SIDE = 14


class Box(NamedTuple):
    """A placed cell."""

    cell: Cell
    x: int
    y: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        """Return the x coordinate of the middle of the box."""
        return self.x + self.width // 2


class Edge(NamedTuple):
    """An edge between two boxes of one block."""

    source: Box
    target: Box
    #: The y coordinate of the end of the source's layer, to which the edge goes straight down.
    below: int
    is_taken: bool = False
    #: How far it is bent to the right, so that boxes between the two do not hide it.
    bend: int = 0


class Layout(NamedTuple):
    """All boxes, outer before inner, and all edges."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]


def layout_of(block: Block) -> Layout:
    """Computes the positions of all boxes and edges of a drawing, including nested blocks."""
    width, height = _size(block)
    boxes, edges = list[Box](), list[Edge]()
    _place(block, PAD, PAD, width, boxes, edges)
    return Layout(width + 2 * PAD + SIDE, height + 2 * PAD, tuple(boxes), tuple(edges))


def _place(block: Block, x: int, y: int, width: int, boxes: list[Box], edges: list[Edge]) -> None:
    """Place a block whose upper left corner is at x and y, each layer in the middle."""
    placed: dict[str, Box] = {}
    below: dict[str, int] = {}
    for layer in block.layers:
        sizes = [_cell_size(cell) for cell in layer]
        left = x + (width - _row_width(sizes)) // 2
        for cell, (w, h) in zip(layer, sizes, strict=True):
            box = Box(cell, left, y, w, h)
            boxes.append(box)
            placed[cell.path] = box
            if cell.block is not None:
                inside = y + title_height(cell)
                _place(cell.block, left + PAD, inside, w - 2 * PAD - SIDE, boxes, edges)
            left += w + GAP_X
        y += max(h for _, h in sizes)
        below |= dict.fromkeys((cell.path for cell in layer), y)
        y += GAP_Y
    for source, target in block.edges:
        ends = placed[source], placed[target]
        bend = _bend(*ends, placed.values())
        edges.append(Edge(*ends, below[source], (source, target) in block.taken, bend))


def _bend(source: Box, target: Box, boxes: Iterable[Box]) -> int:
    """How far an edge is bent to the right to pass the boxes between its ends that hide it."""
    between = [box for box in boxes if source.y + source.height < box.y < target.y]
    middle = (source.middle + target.middle) // 2
    hiding = [box for box in between if box.x <= middle <= box.x + box.width]
    return max((box.x + box.width - middle + SIDE // 2 for box in hiding), default=0)


def _size(block: Block) -> tuple[int, int]:
    rows = [[_cell_size(cell) for cell in layer] for layer in block.layers]
    height = sum(max(h for _, h in row) for row in rows) + GAP_Y * (len(rows) - 1)
    return max(_row_width(row) for row in rows), height


def _row_width(sizes: list[tuple[int, int]]) -> int:
    return sum(w for w, _ in sizes) + GAP_X * (len(sizes) - 1)


def _cell_size(cell: Cell) -> tuple[int, int]:
    if cell.block is None:
        return WIDTH, HEIGHT
    width, height = _size(cell.block)
    notes = max(len(cell.mark.note), len("; ".join(cell.mark.before))) * NOTE_CHARACTER
    inner = max(WIDTH, width + SIDE, min(notes, NOTE_WIDTH))
    return inner + 2 * PAD, height + title_height(cell) + PAD


def title_height(cell: Cell) -> int:
    """Returns the height of the title of a loop's box: one line more if something was before."""
    return TITLE + (LINE + 4 if cell.mark.before else 0)
