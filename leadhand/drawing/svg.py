"""Renders a layout as SVG: no scripts, all text escaped, colours by CSS classes (pure)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from leadhand.drawing.layout import Box, Edge, Layout
from leadhand.models.text import plain

_STYLE = """
svg{color-scheme:light dark;font:13px system-ui,sans-serif;background:light-dark(#fff,#14171c)}
text{fill:light-dark(#1c2430,#e6e9ef)}
.note{font-size:11px;fill:light-dark(#556072,#9aa4b4)}
.box{stroke:light-dark(#8c97a8,#5b6676);fill:light-dark(#f4f6f9,#1f242c);stroke-width:1.5}
.loop{fill:light-dark(#fafbfd,#191d24);stroke-dasharray:5 3}
.edge{stroke:light-dark(#b6bfcc,#464f5c);fill:none;stroke-width:1.5}
.taken{stroke:light-dark(#4a5a70,#a8b4c6)}
.head{fill:light-dark(#8c97a8,#5b6676)}
.running .box,.ready .box{stroke:light-dark(#0b67c2,#5db0ff);stroke-width:2.5}
.running .box{fill:light-dark(#e3f0fd,#12304d)}
.succeeded .box{stroke:light-dark(#1f7a3a,#57c278);fill:light-dark(#e7f6eb,#15301e)}
.failed .box{stroke:light-dark(#b3261e,#ff7b72);fill:light-dark(#fdecea,#3c1715)}
.parked .box,.retry .box{stroke:light-dark(#9a6700,#e3b341);fill:light-dark(#fff6db,#352a0c)}
.skipped,.cancelled{opacity:.55}
.loop.box{fill:light-dark(#fafbfd,#191d24)!important}
"""
#: Characters of a label and of a note in a box.
_LABEL, _NOTE = 20, 25


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
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    # The edges of a block are behind its boxes: one that passes a layer does not cross a label.
    depths = [box.cell.path.count("/") for box in layout.boxes]
    for depth in range(max(depths) + 1):
        yield from (_edge(e) for e in layout.edges if e.source.cell.path.count("/") == depth)
        for box, at in zip(layout.boxes, depths, strict=True):
            if at == depth:
                yield from _box(box)
    yield "</svg>"


def _box(box: Box) -> Iterator[str]:
    cell = box.cell
    full = f"{cell.label}: {cell.mark.state}" + (f", {cell.mark.note}" if cell.mark.note else "")
    yield f'<g class="{_class(cell.mark.state)}" data-node={quoteattr(plain(cell.path))}>'
    yield f"<title>{escape(plain(full, most=400))}</title>"
    kind = "box" if cell.block is None else "loop box"
    place = f'x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"'
    yield f'<rect class="{kind}" {place} rx="7"/>'
    yield f'<text x="{box.x + 12}" y="{box.y + 19}">{_text(cell.label, _LABEL)}</text>'
    note = cell.mark.note or cell.mark.state
    yield f'<text class="note" x="{box.x + 12}" y="{box.y + 35}">{_text(note, _NOTE)}</text>'
    yield "</g>"


def _edge(edge: Edge) -> str:
    source, target = edge.source, edge.target
    x1, y1, x2, y2 = source.middle, source.y + source.height, target.middle, target.y
    started = {source.cell.mark.state, target.cell.mark.state}.isdisjoint(("pending", "skipped"))
    bend = max(12, (y2 - y1) // 2)
    path = f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"
    kind = "edge taken" if started else "edge"
    ends = f"data-from={quoteattr(source.cell.path)} data-to={quoteattr(target.cell.path)}"
    return f'<path class="{kind}" {ends} d="{path}" marker-end="url(#head)"/>'


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
