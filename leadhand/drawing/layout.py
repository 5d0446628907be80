"""Places the cells of a shape: boxes that do not overlap, in units of pixels (pure)."""

from __future__ import annotations

from typing import NamedTuple

from leadhand.drawing.shape import Block, Cell

#: Width of a step's box, heights of a box and of a loop's title, and the space between.
WIDTH, HEIGHT, TITLE, GAP_X, GAP_Y, PAD = 168, 46, 40, 24, 34, 16


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
    return Layout(width + 2 * PAD, height + 2 * PAD, tuple(boxes), tuple(edges))


def _place(block: Block, x: int, y: int, width: int, boxes: list[Box], edges: list[Edge]) -> None:
    """Place a block whose upper left corner is at x and y, each layer in the middle."""
    placed: dict[str, Box] = {}
    for layer in block.layers:
        sizes = [_cell_size(cell) for cell in layer]
        left = x + (width - _row_width(sizes)) // 2
        for cell, (w, h) in zip(layer, sizes, strict=True):
            box = Box(cell, left, y, w, h)
            boxes.append(box)
            placed[cell.path] = box
            if cell.block is not None:
                _place(cell.block, left + PAD, y + TITLE, w - 2 * PAD, boxes, edges)
            left += w + GAP_X
        y += max(h for _, h in sizes) + GAP_Y
    edges += [Edge(placed[source], placed[target]) for source, target in block.edges]


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
    return max(WIDTH, width) + 2 * PAD, height + TITLE + PAD
