"""Renders a layout as SVG: no scripts, all text escaped, colours by CSS classes (pure)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from leadhand.drawing.layout import LINE, NOTE_CHARACTER, WIDTH, Box, Edge, Layout
from leadhand.drawing.shape import PENDING, SIGNS
from leadhand.models.text import plain

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
