"""Renders a shape as text for a terminal of a given width (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from leadhand.drawing.shape import SIGNS, Block, Cell
from leadhand.models.text import plain

#: Between layers: an edge that was taken, and none.
_TAKEN, _NOT_TAKEN = (
    "\N{BOX DRAWINGS LIGHT VERTICAL}",
    "\N{BOX DRAWINGS LIGHT QUADRUPLE DASH VERTICAL}",
)
#: In front of the nodes of one layer: to one that was reached, and to another.
_REACHED, _NOT_REACHED = (
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}",
    "\N{BOX DRAWINGS LIGHT QUADRUPLE DASH HORIZONTAL}",
)


def to_text(block: Block, width: int) -> list[str]:
    """Renders a drawing as a list of text lines, each cut to at most `width` characters.

    A node needs the nodes of the layer above it, unless its line names others. Lines between nodes
    are broken where the session did not pass.
    """
    return [_cut(line, width) for line in _block(block)]


def _block(block: Block) -> Iterator[str]:
    above: tuple[str, ...] = ()
    labels = {cell.path: cell.label for layer in block.layers for cell in layer}
    for number, layer in enumerate(block.layers):
        into = {cell.path: [e for e in block.edges if e[1] == cell.path] for cell in layer}
        taken = {path for path, edges in into.items() if not block.taken.isdisjoint(edges)}
        if number:
            yield _TAKEN if taken else _NOT_TAKEN
        for place, cell in enumerate(layer):
            needs = [source for source, _ in into[cell.path]]
            named = "" if set(needs) == set(above) else _named(block, cell, needs, labels)
            reached = cell.path in taken or (not needs and cell.mark.state not in _WITHOUT)
            side = _side(place, len(layer), reached=reached) if len(layer) > 1 else ""
            is_last = place == len(layer) - 1
            yield from _cell(cell, side, named if number else "", is_last=is_last)
        above = tuple(cell.path for cell in layer)


#: The states of nodes that have not been reached.
_WITHOUT = ("pending", "skipped", "cancelled")


def _named(block: Block, cell: Cell, needs: list[str], labels: Mapping[str, str]) -> str:
    """The nodes that a node needs, those last from which the session did not come to it."""
    if not needs:
        return "  at once"
    came = [need for need in needs if (need, cell.path) in block.taken] or needs
    others = [need for need in needs if need not in came]
    named = ", ".join(plain(labels[need], most=30) for need in came)
    rest = ", ".join(plain(labels[need], most=30) for need in others)
    return f"  after {named}" + (f", not {rest}" if rest else "")


def _side(place: int, count: int, *, reached: bool) -> str:
    """The line that joins the nodes of one layer."""
    corner = "\N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT}"
    if place == 0:
        corner = "\N{BOX DRAWINGS LIGHT DOWN AND RIGHT}"
    elif place == count - 1:
        corner = "\N{BOX DRAWINGS LIGHT UP AND RIGHT}"
    return f"{corner}{_REACHED if reached else _NOT_REACHED} "


def _cell(cell: Cell, side: str, named: str, *, is_last: bool) -> Iterator[str]:
    mark = cell.mark
    sign = SIGNS.get(mark.state, SIGNS["pending"])
    note = f"  {plain(mark.note)}" if mark.note else ""
    said = "" if mark.state == "pending" else f"  {plain(mark.said)}"
    # A long reason would push the rest out of the line.
    parts = [note, named, said] if mark.why else [said, note, named]
    yield f"{side}{sign} {plain(cell.label, most=50)}{''.join(parts)}"
    # The line of the layer continues beside what belongs to a node that is not its last one.
    beside = "" if not side else f"{' ' if is_last else _TAKEN}  "
    inside = f"{beside}{_TAKEN}   "
    for line in mark.before:
        yield f"{inside if cell.block is not None else beside + '  '}({plain(line)})"
    if cell.block is not None:
        for line in _block(cell.block):
            yield inside + line


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "\N{HORIZONTAL ELLIPSIS}"
