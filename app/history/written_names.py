"""The names of steps as their documents have them, where those are no ids of nodes (pure)."""

from __future__ import annotations

from app.domain.addresses import path_of
from app.domain.program import Program
from app.history.points import is_name_of


def written_name(program: Program, address: str) -> str:
    """Returns a step's name in its document; '' if that equals the address, or inside a loop.

    A step in a loop is named by its address, which says the iteration.
    """
    path = path_of(address)
    if not address or "/" in path or not program.has(path):
        return ""
    name = program.node(path).label or ""
    if name == address:
        return ""
    _, _, item = address.partition("#")
    return f"{name} {item}".strip() if name else ""


def name_in_commands(program: Program, address: str) -> str:
    """Returns how a command names a step: by its name or label if that is its own.

    Otherwise by its address, without the run if it is in no loop: a command means the newest.
    """
    path = path_of(address)
    if "/" in path or not program.has(path):
        return address
    label, (_, sign, item) = program.node(path).label, address.partition("#")
    name = label if label is not None and is_name_of(program, label, path) else path
    return f"{name}{sign}{item}"
