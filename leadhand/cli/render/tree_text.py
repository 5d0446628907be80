"""Formats a tree of sessions as text (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from leadhand.cli.render.live_text import elapsed
from leadhand.models.text import plain, reason_text
from leadhand.models.views.session import TreeNode, TreeView


def tree_lines(view: TreeView) -> Iterator[str]:
    """Formats a tree of sessions, one indented line each, and why the first one ended."""
    top = view.items[0].depth
    for node in view.items:
        yield f"{'  ' * (node.depth - top)}{_line(node)}"
    if view.note is not None:
        yield f"... {plain(view.note, most=400)}"
    if view.causes:
        yield ""
    for number, cause in enumerate(view.causes):
        at = f" at {plain(cause.at)}" if cause.at else ""
        text = f": {plain(cause.text, most=400)}" if cause.text else ""
        yield f"{'so: ' if number else 'why: '}{cause.session}{at} {cause.code}{text}"


def _line(node: TreeNode) -> str:
    parts = [f"[{plain(node.title, most=60)} ({node.id})] {node.status}"]
    if node.phase is not None and node.phase.phase != node.status:
        parts.append(f"{node.phase.role} {node.phase.phase}")
    parts.append(elapsed(round(node.elapsed_s * 1000)))
    if node.cost_usd:
        parts.append(f"${node.cost_usd:.4f}")
    if node.detached_from is not None:
        parts.append(f"detached from {node.detached_from}")
    why = reason_text(node.reason.model_dump()) if node.reason is not None else ""
    return ", ".join(parts) + (f": {why}" if why and node.status != "completed" else "")
