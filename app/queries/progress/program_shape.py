"""The nodes of a program as they are drawn (pure)."""

from __future__ import annotations

from app.domain.program import Loop, Node, Program, needs_of
from leadhand.drawing.shape import Block, Drawn, Mark
from leadhand.drawing.shape import shape_of as arrange


def shape_of(program: Program, marks: dict[str, Mark]) -> Block:
    """Arranges a program's nodes in layers for a drawing; `marks` has their states by path."""
    return arrange(_drawn(program.body), marks)


def _drawn(block: tuple[Node, ...]) -> tuple[Drawn, ...]:
    needs = needs_of(block)
    return tuple(
        Drawn(
            node.id,
            node.label or node.id,
            needs[node.id],
            _drawn(node.body) if isinstance(node, Loop) else (),
        )
        for node in block
    )
