"""Draws graphs of steps: as plain text and as SVG (pure).

A block is drawn in layers: a node is one layer below the last node that it needs, so nodes of one
layer may run side by side. Large blocks are collapsed: the boxes of a drawing are bounded, however
many steps there are.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from leadhand.models.text import plain

#: Boxes of one layer, and layers of one block; more are collapsed into one box.
WIDE, DEEP = 6, 40
#: Loops in loops that are drawn with what is in them.
NESTED = 4
#: The order in which the states of collapsed nodes are listed.
STATES = (
    "running", "parked", "ready", "failed", "retry", "succeeded", "skipped", "cancelled", "pending",
)  # fmt: skip
#: Width of a step's box, heights of a box and of a loop's title, and the space between.
WIDTH, HEIGHT, TITLE, GAP_X, GAP_Y, PAD = 168, 46, 40, 24, 34, 16
#: Height of a line of a note, average width of its characters, and the most room for one.
LINE, NOTE_CHARACTER, NOTE_WIDTH = 16, 6, 480
#: Free space on the right of a block, for edges that pass boxes.
SIDE = 14
#: Between layers: an edge that was taken, and none.
_TAKEN, _NOT_TAKEN = (
    "\N{BOX DRAWINGS LIGHT VERTICAL}",
    "\N{BOX DRAWINGS LIGHT QUADRUPLE DASH VERTICAL}",
)
#: In front of the nodes of one layer: to one that was reached, and to another.
_REACHED_MARK, _NOT_REACHED = (
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}",
    "\N{BOX DRAWINGS LIGHT QUADRUPLE DASH HORIZONTAL}",
)
_STYLE = """
svg{color-scheme:light dark;font:13px system-ui,sans-serif;background:light-dark(#fff,#14171c)}
text{fill:light-dark(#1c2430,#e6e9ef)}
.note{font-size:11px;fill:light-dark(#556072,#9aa4b4)}
.box{stroke:light-dark(#8c97a8,#5b6676);fill:light-dark(#f4f6f9,#1f242c);stroke-width:1.5}
.loop{fill:light-dark(#fafbfd,#191d24);stroke-dasharray:5 3}
.edge{stroke:light-dark(#b6bfcc,#464f5c);fill:none;stroke-width:1.5;stroke-dasharray:3 4}
.plain{stroke-dasharray:none}
.taken{stroke:light-dark(#4a5a70,#a8b4c6);stroke-width:2.5;stroke-dasharray:none}
.head{fill:light-dark(#8c97a8,#5b6676)}
.running .box,.ready .box{stroke:light-dark(#0b67c2,#5db0ff);stroke-width:2.5}
.running .box{fill:light-dark(#e3f0fd,#12304d)}
.succeeded .box{stroke:light-dark(#1f7a3a,#57c278);fill:light-dark(#e7f6eb,#15301e)}
.failed .box{stroke:light-dark(#b3261e,#ff7b72);fill:light-dark(#fdecea,#3c1715)}
.parked .box,.retry .box{stroke:light-dark(#9a6700,#e3b341);fill:light-dark(#fff6db,#352a0c)}
.skipped text,.cancelled text{opacity:.6}
.loop.box{fill:light-dark(#fafbfd,#191d24)!important}
"""
#: Characters of a label and of a note in a box.
_LABEL, _NOTE = 20, 25
#: The average width of a character of a label.
_WIDE = 8


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


def to_text(block: Block, width: int) -> list[str]:
    """Renders a drawing as a list of text lines, each cut to at most `width` characters.

    A node needs the nodes of the layer above it, unless its line names others. Lines between nodes
    are broken where the session did not pass.
    """
    return [_cut(line, width) for line in _text_block(block)]


def _text_block(block: Block) -> Iterator[str]:
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
            yield from _text_cell(cell, side, named if number else "", is_last=is_last)
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
    return f"{corner}{_REACHED_MARK if reached else _NOT_REACHED} "


def _text_cell(cell: Cell, side: str, named: str, *, is_last: bool) -> Iterator[str]:
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
        for line in _text_block(cell.block):
            yield inside + line


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "\N{HORIZONTAL ELLIPSIS}"


def to_svg(layout: Layout, title: str) -> str:
    """Renders a drawing as one SVG document."""
    return "\n".join(_lines(layout, title)) + "\n"


def _lines(layout: Layout, title: str) -> Iterator[str]:
    size = f'width="{layout.width}" height="{layout.height}"'
    view = f'viewBox="0 0 {layout.width} {layout.height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img">'
    yield f"<title>{escape(plain(title, most=200))}</title>"
    yield f"<style>{_STYLE}</style>"
    yield (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9"'
        ' markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
        '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    # The edges of a block are behind its boxes: one that passes a layer does not cross a label.
    depths = [box.cell.path.count("/") for box in layout.boxes]
    has_run = any(box.cell.mark.state != PENDING.state for box in layout.boxes)
    for depth in range(max(depths) + 1):
        edges = (e for e in layout.edges if e.source.cell.path.count("/") == depth)
        yield from (_edge(edge, has_run=has_run) for edge in edges)
        for box, at in zip(layout.boxes, depths, strict=True):
            if at == depth:
                yield from _box(box, has_run=has_run)
    yield "</svg>"


def _box(box: Box, *, has_run: bool) -> Iterator[str]:
    cell = box.cell
    mark = cell.mark
    before = "; ".join(mark.before)
    full = ", ".join(part for part in (f"{cell.label}: {mark.said}", mark.note, before) if part)
    yield f'<g class="{_class(cell.mark.state)}" data-node={quoteattr(plain(cell.path))}>'
    yield f"<title>{escape(plain(full, most=400))}</title>"
    kind = "box" if cell.block is None else "loop box"
    place = f'x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"'
    yield f'<rect class="{kind}" {place} rx="7"/>'
    sign = f"{SIGNS.get(mark.state, SIGNS[PENDING.state])} " if has_run else ""
    room = box.width - WIDTH
    label = f"{sign}{_text(cell.label, _LABEL + room // _WIDE - len(sign))}"
    yield f'<text x="{box.x + 12}" y="{box.y + 19}">{label}</text>'
    note = mark.note or mark.said
    notes = [note, before] if cell.block is not None and before else [note]
    for line, text in enumerate(notes):
        at = f'x="{box.x + 12}" y="{box.y + 35 + LINE * line}"'
        yield f'<text class="note" {at}>{_text(text, _NOTE + room // NOTE_CHARACTER)}</text>'
    yield "</g>"


def _edge(edge: Edge, *, has_run: bool) -> str:
    source, target = edge.source, edge.target
    x1, y1, x2, y2 = source.middle, source.y + source.height, target.middle, target.y
    down = max(12, (y2 - edge.below) // 2)
    aside = edge.bend * 4 // 3  # a curve comes three quarters as far as its two control points
    curve = f"M{x1} {y1}V{edge.below}C{x1 + aside} {edge.below + down}"
    curve += f" {x2 + aside} {y2 - down} {x2} {y2}"
    kind = "edge taken" if edge.is_taken else "edge" if has_run else "edge plain"
    ends = f"data-from={quoteattr(source.cell.path)} data-to={quoteattr(target.cell.path)}"
    said = f"<title>{'taken' if edge.is_taken else 'not taken'}</title>" if has_run else ""
    return f'<path class="{kind}" {ends} d="{curve}" marker-end="url(#head)">{said}</path>'


def _class(state: str) -> str:
    return state if state.isalpha() else "pending"


def _text(text: str, most: int) -> str:
    """The beginning of a text that fits into a box; a wide character takes the place of two."""
    shown, room = "", most
    for character in plain(text, most=most):
        room -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if room < 0:
            return escape(shown[:-1] + "\N{HORIZONTAL ELLIPSIS}")
        shown += character
    return escape(shown)
