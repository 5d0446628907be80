"""Renders a shape as text for a terminal of a given width (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from leadhand.drawing.shape import Block, Cell
from leadhand.models.text import plain

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


def to_text(block: Block, width: int) -> list[str]:
    """Renders a drawing as a list of text lines, each cut to at most `width` characters.

    A node needs the nodes of the layer above it, unless its line names others.
    """
    return [_cut(line, width) for line in _block(block)]


def _block(block: Block) -> Iterator[str]:
    above: tuple[str, ...] = ()
    labels = {cell.path: cell.label for layer in block.layers for cell in layer}
    for number, layer in enumerate(block.layers):
        if number:
            yield "\N{BOX DRAWINGS LIGHT VERTICAL}"
        together = len(layer) > 1
        for place, cell in enumerate(layer):
            needs = tuple(source for source, target in block.edges if target == cell.path)
            after = ", ".join(plain(labels[need], most=30) for need in needs)
            named = "" if set(needs) == set(above) else f"  after {after}" if needs else "  at once"
            side = _side(place, len(layer)) if together else ""
            yield from _cell(cell, side, named if number else "")
        above = tuple(cell.path for cell in layer)


def _side(place: int, count: int) -> str:
    """The line that joins the nodes of one layer."""
    if place == 0:
        return "\N{BOX DRAWINGS LIGHT DOWN AND RIGHT} "
    last = place == count - 1
    return (
        "\N{BOX DRAWINGS LIGHT UP AND RIGHT} "
        if last
        else "\N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT} "
    )


def _cell(cell: Cell, side: str, named: str) -> Iterator[str]:
    sign = SIGNS.get(cell.mark.state, SIGNS["pending"])
    note = f"  {plain(cell.mark.note)}" if cell.mark.note else ""
    state = "" if cell.mark.state == "pending" else f"  {cell.mark.state}"
    yield f"{side}{sign} {plain(cell.label, most=50)}{state}{note}{named}"
    if cell.block is not None:
        for line in _block(cell.block):
            yield f"{' ' * len(side)}\N{BOX DRAWINGS LIGHT VERTICAL}   {line}"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "\N{HORIZONTAL ELLIPSIS}"
