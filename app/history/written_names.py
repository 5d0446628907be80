"""The names of steps as their documents have them, where those are no ids of nodes (pure)."""

from __future__ import annotations

from app.domain.addresses import path_of
from app.domain.program import Program


def written_name(program: Program, address: str) -> str:
    """Returns a step's name in its document; '' if that equals the node id, or inside a loop.

    A step in a loop is named by its address, which says the iteration.
    """
    path = path_of(address)
    if not address or "/" in path or not program.has(path):
        return ""
    name = program.node(path).label or ""
    if name == path:
        return ""
    _, _, item = address.partition("#")
    return f"{name} {item}".strip() if name else ""
